//! What an agent may do for a laboratory, and what it knows by name.

use anabranch_lab::contender::{Contender, Terms};
use anabranch_lab::hosts::{Job, Role, Serving};
use anabranch_lab::machine::Machine;
use anabranch_qlog::{Folder, WhenSlow};
use anabranch_schedulers::Names;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Where an agent may write qlog files.
#[derive(Debug, Clone)]
pub(crate) enum QlogAt {
    /// Where the job says: the laboratory has this user's rights anyway.
    Anywhere,
    /// In this folder, in a subfolder for each run.
    Under(PathBuf),
    /// Nowhere.
    Nowhere,
}

impl QlogAt {
    pub(crate) fn folder(&self, job: &Job) -> Result<Option<Folder>, String> {
        let Some(wanted) = &job.qlog else {
            return Ok(None);
        };
        let path = match self {
            Self::Anywhere => wanted.clone(),
            // The id was checked: it cannot name another folder.
            Self::Under(root) => root.join(&job.run_id),
            Self::Nowhere => {
                return Err(
                    "unsupported: this agent was given no folder for qlog files: expected `--qlog \
                     DIR` at its start"
                        .into(),
                );
            }
        };
        // The report is complete only with all records.
        let made = Folder::create(&path, "anabranch", WhenSlow::Wait);
        made.map(Some).map_err(|error| format!("qlog: {error}"))
    }
}

/// Where a server can be reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doors {
    /// Ports to choose from; the kernel's choice if `None`.
    pub(crate) ports: Option<RangeInclusive<u16>>,
    /// Whether the addresses of a job are those that a remote laboratory calls: behind address
    /// translation they are not this machine's.
    pub(crate) called_from_afar: bool,
}

impl Doors {
    /// Binds something to an address, at the first free port.
    ///
    /// # Errors
    /// The system's last error.
    pub(crate) fn open<T>(
        &self,
        local: IpAddr,
        bind: impl Fn(SocketAddr) -> io::Result<T>,
    ) -> io::Result<T> {
        let at = |ip: IpAddr| match &self.ports {
            None => bind(SocketAddr::new(ip, 0)),
            Some(ports) => {
                let mut last = io::Error::from(io::ErrorKind::AddrInUse);
                for port in ports.clone() {
                    match bind(SocketAddr::new(ip, port)) {
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                        other => return other,
                    }
                }
                let (first, end) = (ports.start(), ports.end());
                let what = format!("no port of {first}-{end} is free: {last}");
                Err(io::Error::new(io::ErrorKind::AddrInUse, what))
            }
        };
        match at(local) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable && self.called_from_afar =>
            {
                at(match local {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                })
            }
            other => other,
        }
    }
}

impl Doors {
    /// A port that is free for both TCP and UDP, for a program.
    ///
    /// # Errors
    /// The system's last error.
    pub(crate) fn free_port(&self) -> io::Result<u16> {
        self.open(Ipv4Addr::UNSPECIFIED.into(), |at| {
            let listener = TcpListener::bind(at)?;
            let port = listener.local_addr()?.port();
            UdpSocket::bind((at.ip(), port))?;
            Ok(port)
        })
    }
}

/// All rules.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) qlog: QlogAt,
    pub(crate) doors: Doors,
    /// The schedulers and congestion controllers that jobs may name.
    pub(crate) names: Arc<Names>,
    /// Third-party programs it may start.
    pub(crate) programs: Vec<Contender>,
    /// Whether it may be the client of a run, which calls the addresses that its laboratory gives.
    pub(crate) may_call: bool,
    /// The machine, once it has been examined.
    pub(crate) machine: Arc<OnceLock<Machine>>,
}

impl Rules {
    /// The rules of an agent that its laboratory started itself.
    pub(crate) fn own(names: Arc<Names>) -> Self {
        Self {
            names,
            qlog: QlogAt::Anywhere,
            doors: Doors::default(),
            programs: Vec::new(),
            may_call: true,
            machine: Arc::default(),
        }
    }

    /// The current state of the machine. Other programs are started for it at most once.
    pub(crate) fn machine(&self) -> Machine {
        self.machine.get_or_init(Machine::examine).look_again()
    }

    /// Refuses jobs that this agent does for no laboratory.
    ///
    /// # Errors
    /// Why the job is refused.
    pub(crate) fn check(&self, job: &Job) -> Result<(), String> {
        if job.role == Role::Client && !self.may_call {
            return Err(
                "this agent listens, and calls nobody: expected a job of the role `server`"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The program that a laboratory asks for, with its terms for this host.
    ///
    /// # Errors
    /// It is not allowed, or there is no port for it.
    pub(crate) fn program(&self, serving: Serving) -> Result<(Contender, Terms), String> {
        let Serving {
            contender,
            mut terms,
        } = serving;
        let allowed = self.programs.iter().find(|known| known.name == contender);
        let Some(allowed) = allowed else {
            return Err(format!(
                "unsupported: this agent was not given the contender `{contender}`: expected \
                 `--contender FILE` at its start"
            ));
        };
        let port = self.doors.free_port();
        terms.port = port.map_err(|error| format!("no port for `{contender}`: {error}"))?;
        // Routing decides here which interface packets come in on.
        terms.interfaces.clear();
        Ok((allowed.clone(), terms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_port_is_taken_and_a_full_range_is_told() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let doors = Doors {
            ports: Some(port..=port),
            called_from_afar: false,
        };
        let error = doors.open([127, 0, 0, 1].into(), TcpListener::bind);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("{port}-{port}")), "{error}");
        assert!(doors.open([127, 0, 0, 2].into(), TcpListener::bind).is_ok());
    }

    #[test]
    fn an_address_of_a_translation_is_bound_everywhere() {
        let foreign = IpAddr::from([192, 0, 2, 1]);
        let mut doors = Doors::default();
        assert!(doors.open(foreign, TcpListener::bind).is_err());
        doors.called_from_afar = true;
        let listener = doors.open(foreign, TcpListener::bind).unwrap();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
    }
}
