//! An image for containers (OCI image format 1.1) with nothing in it but the command: an archive
//! that `podman load`, `skopeo copy oci-archive:` and `docker load` (since version 25) take.

use super::archive::{Entry, gzip, tar};
use super::hex;
use serde_json::{Value, json};

/// The user that the command runs as in a container; keys and sockets belong to it.
const USER: u64 = 65_532;

/// The image: `binary` for `architecture`, in the words of OCI.
pub(super) fn image(architecture: &str, binary: &[u8], notices: &str) -> Result<Vec<u8>, String> {
    let layer = tar(&[
        Entry::program("anabranch", binary),
        Entry::file("LICENCES", notices),
        Entry::directory("state/", USER, 0o700),
        Entry::directory("run/", USER, 0o700),
        Entry::directory("tmp/", 0, 0o1777),
    ])?;
    let packed = gzip(&layer)?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/anabranch"],
            "Cmd": ["tunnel", "serve"],
            "Env": ["HOME=/state", "XDG_STATE_HOME=/state", "XDG_RUNTIME_DIR=/run"],
            "ExposedPorts": {"4433/udp": {}, "4434/udp": {}},
            "Volumes": {"/state": {}},
            "WorkingDir": "/",
            "StopSignal": "SIGINT",
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        "history": [{"created_by": "cargo xtask dist"}],
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("application/vnd.oci.image.config.v1+json", &config),
        "layers": [describe("application/vnd.oci.image.layer.v1.tar+gzip", &packed)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = describe("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    let name = concat!("anabranch:", env!("CARGO_PKG_VERSION"));
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let mut entries = vec![
        Entry::file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
        Entry::file("index.json", index),
        Entry::directory("blobs/", 0, 0o755),
        Entry::directory("blobs/sha256/", 0, 0o755),
    ];
    for blob in [packed, config, manifest] {
        let path = format!("blobs/sha256/{}", hex(&blob));
        entries.push(Entry::file(&path, blob));
    }
    tar(&entries)
}

/// A blob as a manifest names it.
fn describe(kind: &str, blob: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(blob), "size": blob.len()})
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", hex(blob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read as _;

    #[test]
    fn everything_an_image_names_is_in_it() {
        let image = image("arm64", b"binary", "").expect("memory");
        let mut files = BTreeMap::new();
        let mut archive = tar::Archive::new(image.as_slice());
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("memory");
            files.insert(path, content);
        }
        let blob = |described: &Value| {
            let digest = described["digest"].as_str().expect("a digest");
            let path = format!("blobs/{}", digest.replace(':', "/"));
            let content = files.get(&path).expect("a blob");
            assert_eq!(described["size"], content.len());
            assert_eq!(digest, super::digest(content));
            content.clone()
        };
        let read = |content: &[u8]| serde_json::from_slice::<Value>(content).expect("JSON");
        let index = read(&files["index.json"]);
        let manifest = read(&blob(&index["manifests"][0]));
        let config = read(&blob(&manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"][0], "/anabranch");
        assert_eq!(config["architecture"], "arm64");
        assert!(blob(&manifest["layers"][0]).starts_with(&[0x1f, 0x8b]));
    }
}
