//! Parts on a disk: kept, continued, finished and never mixed up.

use super::super::digests::{Digests, Turns};
use super::super::uploads::{Account, Limits, Uploads};
use super::super::writer::Writer;
use super::*;
use bytes::Bytes;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn place(root: &Path, path: &str, tag: Option<&str>) -> Result<Place, Refusal> {
    Place::new(
        &Root::open(root).unwrap(),
        &RelPath::parse(path).unwrap(),
        tag,
    )
}

/// Begins an upload as the first one of a new server.
fn begin(place: Place) -> Result<Upload, Refusal> {
    let uploads = Arc::new(Uploads::new(Limits::default()));
    uploads.begin(place, &Arc::new(Account::default()), None)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

async fn append(upload: &Upload, from: u64, data: &'static [u8]) {
    let hashed = Digests::default()
        .prefix(upload.file().unwrap(), from, &Turns::default())
        .await;
    let (file, hash) = hashed.unwrap();
    let mut writer = Writer::start(file, from, hash).unwrap();
    writer.write(Bytes::from_static(data)).await.unwrap();
    writer.finish().await.unwrap();
}

#[tokio::test]
async fn a_named_upload_is_kept_and_continued() {
    let root = tempfile::tempdir().unwrap();
    let at = || place(root.path(), "/file", Some("tag")).unwrap();
    let upload = begin(at()).unwrap();
    append(&upload, 0, b"hello ").await;
    drop(upload);
    assert_eq!(at().length(), 6);
    assert_eq!(
        place(root.path(), "/file", Some("other")).unwrap().length(),
        0
    );
    let upload = begin(at()).unwrap();
    append(&upload, 6, b"world").await;
    assert!(!at().is_taken());
    upload.commit(&Precondition::None, None).unwrap();
    assert_eq!(at().taken_length(), Some(11));
    assert_eq!(names(root.path()), ["file"]);
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"hello world");
}

#[tokio::test]
async fn a_nameless_or_empty_upload_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let upload = begin(place(root.path(), "/file", None).unwrap()).unwrap();
    append(&upload, 0, b"hello").await;
    assert_eq!(names(root.path()).len(), 1);
    drop(upload);
    drop(begin(place(root.path(), "/file", Some("tag")).unwrap()).unwrap());
    assert!(names(root.path()).is_empty());
}

#[tokio::test]
async fn two_programs_cannot_write_the_same_upload() {
    let root = tempfile::tempdir().unwrap();
    let at = || place(root.path(), "/file", Some("tag")).unwrap();
    let first = begin(at()).unwrap();
    assert_eq!(begin(at()).unwrap_err(), Refusal::InUse);
    first.discard();
    assert!(begin(at()).is_ok());
}

#[tokio::test]
async fn of_two_uploads_that_must_not_replace_anything_one_loses() {
    let root = tempfile::tempdir().unwrap();
    let start = |tag| {
        let place = place(root.path(), "/file", Some(tag)).unwrap();
        place.check(&Precondition::Absent).unwrap();
        begin(place).unwrap()
    };
    let (one, other) = (start("one"), start("other"));
    append(&one, 0, b"one").await;
    append(&other, 0, b"other").await;
    one.commit(&Precondition::Absent, None).unwrap();
    let lost = other.commit(&Precondition::Absent, None);
    assert_eq!(lost.unwrap_err(), Refusal::Exists);
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"one");
    // Only the kernel notices a file that another program put there.
    let third = place(root.path(), "/file", None).unwrap();
    fs::write(root.path().join(&third.part), "x").unwrap();
    assert_eq!(third.rename(&Precondition::Absent), Err(Errno::EEXIST));
}

#[tokio::test]
async fn an_upload_that_replaces_a_version_leaves_any_other_alone() {
    let root = tempfile::tempdir().unwrap();
    let at = || place(root.path(), "/file", None).unwrap();
    assert_eq!(at().check(&Precondition::Present), Err(Refusal::Changed));
    fs::write(root.path().join("file"), "old").unwrap();
    let tag = version(&at().stat(OsStr::new("file")).unwrap()).etag();
    let known = Precondition::Version(vec!["\"other\"".into(), tag]);
    let upload = begin(at()).unwrap();
    append(&upload, 0, b"mine").await;
    at().check(&known).unwrap();
    fs::write(root.path().join("file"), "theirs").unwrap();
    assert_eq!(upload.commit(&known, None).unwrap_err(), Refusal::Changed);
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"theirs");
    assert_eq!(names(root.path()), ["file"]);
}

#[test]
fn a_part_that_was_removed_before_it_was_locked_is_made_anew() {
    let root = tempfile::tempdir().unwrap();
    let at = || place(root.path(), "/file", Some("tag")).unwrap();
    let early = begin(at()).unwrap();
    assert!(at().is_part(&*early.file).unwrap());
    fs::remove_file(root.path().join(&early.place.part)).unwrap();
    assert!(!at().is_part(&*early.file).unwrap(), "nobody's file");
    let late = begin(at()).unwrap();
    assert!(at().is_part(&*late.file).unwrap());
}

#[tokio::test]
async fn a_file_keeps_the_time_its_client_tells() {
    let root = tempfile::tempdir().unwrap();
    let upload = begin(place(root.path(), "/file", None).unwrap()).unwrap();
    append(&upload, 0, b"x").await;
    let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    upload.commit(&Precondition::None, Some(then)).unwrap();
    let metadata = fs::metadata(root.path().join("file")).unwrap();
    assert_eq!(metadata.modified().unwrap(), then);
}

#[tokio::test]
async fn a_part_that_gets_no_name_keeps_the_time_it_was_received_at() {
    let root = tempfile::tempdir().unwrap();
    let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let at = || place(root.path(), "/file", Some("tag")).unwrap();
    let part = root.path().join(at().part);
    let modified = || fs::metadata(&part).unwrap().modified().unwrap();
    let upload = begin(at()).unwrap();
    append(&upload, 0, b"x").await;
    let received = modified();
    let refused = upload.commit(&Precondition::Present, Some(then));
    assert_eq!(refused.unwrap_err(), Refusal::Changed);
    assert_eq!(modified(), received, "the precondition does not hold");
    let upload = begin(at()).unwrap();
    fs::create_dir(root.path().join("file")).unwrap();
    assert!(upload.commit(&Precondition::None, Some(then)).is_err());
    assert_eq!(modified(), received, "it cannot be renamed");
}

#[test]
fn a_directory_in_the_way_is_told_from_one_that_is_missing() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("dir")).unwrap();
    let refusal = |path: &str| place(root.path(), path, None).unwrap_err();
    for path in ["/dir", "/", "/new/"] {
        assert_eq!(refusal(path), Refusal::IsDirectory, "{path}");
    }
    assert_eq!(refusal("/missing/file"), Refusal::NoDirectory);
}

#[test]
fn part_names_are_hidden_and_fit() {
    let name = OsString::from("x".repeat(255));
    let part = part_name(&name, Some("tag"));
    assert!(part.len() <= 255 && super::super::root::is_part(part.as_bytes()));
    assert!(is_our_part(part.as_bytes()));
    assert_ne!(part_name(&name, None), part_name(&name, None));
    for other in [
        ".part",
        ".x.part",
        ".0123456789abcdef.part",
        "x.0123456789abcdef.part",
    ] {
        assert!(!is_our_part(other.as_bytes()), "{other}");
    }
}
