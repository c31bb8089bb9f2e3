//! What one end of a plain proxy pair is told: as an agent's option, since it is started with it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// One end of a plain proxy pair, for hosts that know nothing of multipath TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// Where it takes connections in: the near end those that are redirected to it, the far end
    /// those of the near end.
    pub listen: SocketAddr,
    /// The congestion control of multipath TCP, by the kernel's name.
    pub congestion: String,
    /// For the near end: its own address, whose port is 0, and that of the far end.
    pub far: Option<[SocketAddr; 2]>,
}

impl Relay {
    /// What its first line of output begins with, once it listens.
    pub const READY: &'static str = "listening on";
}

/// As [`FromStr`] reads it: `LISTEN,CONGESTION`, and for a near end `,OWN,FAR`.
impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.listen, self.congestion)?;
        match self.far {
            Some([own, far]) => write!(f, ",{own},{far}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Relay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(',').collect();
        let address = |word: &str| {
            let read = word.parse::<SocketAddr>();
            read.map_err(|_| format!("`{word}` is no address with a port"))
        };
        let (listen, congestion, far) = match *words {
            [listen, congestion] => (listen, congestion, None),
            [listen, congestion, own, far] => {
                (listen, congestion, Some([address(own)?, address(far)?]))
            }
            _ => return Err("expected LISTEN,CONGESTION or LISTEN,CONGESTION,OWN,FAR".into()),
        };
        Ok(Self {
            listen: address(listen)?,
            congestion: congestion.to_owned(),
            far,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_read_as_they_were_written() {
        let far = Relay {
            listen: "0.0.0.0:7301".parse().unwrap(),
            congestion: "cubic".into(),
            far: None,
        };
        let near = Relay {
            far: Some(["10.77.0.1:0", "10.77.0.2:7301"].map(|text| text.parse().unwrap())),
            ..far.clone()
        };
        for relay in [far, near] {
            assert_eq!(relay.to_string().parse(), Ok(relay));
        }
        let refused = "nowhere,cubic".parse::<Relay>().unwrap_err();
        assert!(refused.contains("`nowhere`"), "{refused}");
        assert!("1.2.3.4:5".parse::<Relay>().is_err());
    }
}
