//! What `our_end` is told.

use crate::Outcome;
use anabranch_interop::Request;
use anabranch_net::engine::TransportConfig;
use anabranch_net::interfaces::spec::PathSpec;
use anabranch_proto::sched::SchedulerFactory;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Everything on the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) ends: Ends,
    pub(crate) paths: Vec<(IpAddr, SocketAddr)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) uplinks: Vec<PathSpec>,
    pub(crate) retry: bool,
    pub(crate) scheduler: Option<String>,
}

/// Which end this is.
#[derive(Debug)]
pub(crate) enum Ends {
    Server {
        cert: Vec<u8>,
        key: Vec<u8>,
        listen: Vec<SocketAddr>,
    },
    Client {
        request: Request,
        server: SocketAddr,
        local: IpAddr,
        cert: Vec<u8>,
    },
    /// Only makes a certificate, in these files.
    Certificate { cert: PathBuf, key: PathBuf },
}

/// Something to do when so many bytes have passed.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) at: u64,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Position in [`Options::paths`], from 0.
    Open(usize),
    Abandon(u32),
    Backup(u32),
    Available(u32),
    Keys,
}

impl Options {
    pub(crate) fn transport(&self) -> Outcome<TransportConfig> {
        let mut config = anabranch_schedulers::transport();
        if let Some(spec) = &self.scheduler {
            let spec = spec.parse()?;
            config.scheduler = SchedulerFactory::new(&anabranch_schedulers::builtin(), &spec)?;
        }
        Ok(config)
    }
}

pub(crate) fn parse(words: &[String]) -> Outcome<Options> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (ends, rest) = match words.as_slice() {
        ["serve", cert, key, listen, rest @ ..] => {
            let listen = listen
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()?;
            let ends = Ends::Server {
                cert: certificate(cert)?,
                key: PrivateKeyDer::from_pem_file(key)?.secret_der().to_vec(),
                listen,
            };
            (ends, rest)
        }
        ["certificate", cert, key] => {
            let (cert, key) = (PathBuf::from(cert), PathBuf::from(key));
            (Ends::Certificate { cert, key }, &[][..])
        }
        [
            kind @ ("get" | "put"),
            bytes,
            server,
            local,
            cert,
            rest @ ..,
        ] => {
            let bytes = bytes.parse()?;
            let ends = Ends::Client {
                request: if *kind == "get" {
                    Request::Get(bytes)
                } else {
                    Request::Put(bytes)
                },
                server: server.parse()?,
                local: local.parse()?,
                cert: certificate(cert)?,
            };
            (ends, rest)
        }
        _ => return Err("expected serve, get or put".into()),
    };
    let mut options = Options {
        ends,
        paths: Vec::new(),
        steps: Vec::new(),
        uplinks: Vec::new(),
        retry: false,
        scheduler: None,
    };
    let mut rest = rest.iter();
    while let Some(&name) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{name} wants a value"));
        match name {
            "--retry" => options.retry = true,
            "--scheduler" => options.scheduler = Some(value()?.to_owned()),
            "--uplink" => options.uplinks.push(value()?.parse()?),
            "--at" => options.steps.push(step(value()?)?),
            "--path" => {
                let (local, server) = value()?.split_once('=').ok_or("--path LOCAL=SERVER")?;
                options.paths.push((local.parse()?, server.parse()?));
            }
            other => return Err(format!("no option `{other}`").into()),
        }
    }
    Ok(options)
}

fn certificate(file: &str) -> Outcome<Vec<u8>> {
    Ok(CertificateDer::from_pem_file(file)?.to_vec())
}

fn step(text: &str) -> Outcome<Step> {
    let parts: Vec<&str> = text.split(':').collect();
    let action = match parts.as_slice() {
        [_, "open", n] => Action::Open(n.parse::<usize>()?.checked_sub(1).ok_or("from 1")?),
        [_, "abandon", id] => Action::Abandon(id.parse()?),
        [_, "backup", id] => Action::Backup(id.parse()?),
        [_, "available", id] => Action::Available(id.parse()?),
        [_, "keys"] => Action::Keys,
        _ => return Err(format!("`{text}` is no BYTES:ACTION[:N]").into()),
    };
    let at = parts[0].parse()?;
    Ok(Step { at, action })
}
