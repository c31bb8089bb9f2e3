//! The operations and faults of a random world.

use super::Trial;
use super::topology::random_link;
use crate::app::Files;
use crate::scene::FIRST;
use crate::{Change, Direction, Directions, LinkChange};
use anabranch_link::{Jitter, Loss};
use anabranch_proto::connection::Connection;
use anabranch_proto::path::PathOptions;
use anabranch_proto::path::PathState;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use bytes::Bytes;
use std::time::Duration;

impl Trial {
    /// One random operation by the applications, the operator or the network.
    pub(super) fn disturb(&mut self) {
        self.disturb_widely();
        match self.dice.below(20) {
            0..=2 => self.cut(),
            3 => self.admin(),
            4 => self.readdress(),
            5 => self.abandon(),
            6 => self.set_options(),
            7 => self.update_keys(),
            8 => self.rebind(),
            9 | 10 => self.change_link(),
            11..=14 => self.start_file(),
            15 => self.cut_stream(),
            16 => self.send_datagrams(),
            17 => self.ping(),
            _ => {}
        }
    }

    /// Faults that happen only in campaign worlds: clocks that jump, NATs that forget several times
    /// in a row, and one direction of every link falling silent.
    fn disturb_widely(&mut self) {
        let Some(dice) = &mut self.wide else {
            return;
        };
        match dice.below(12) {
            0 => {
                let server = dice.below(2) == 0;
                let by = Duration::from_millis(dice.pick(&[1, 50, 400, 3_000]));
                self.side_mut(server).jump(by);
                self.say(format!(
                    "the clock of the server, {server}, jumps by {by:?}"
                ));
            }
            1 => {
                for _ in 0..dice.below(4) {
                    self.rebind();
                }
            }
            2 => {
                let silent = dice.pick(&[Direction::Forward, Direction::Backward]);
                for (link, _) in self.topology.links.clone() {
                    let change = LinkChange::Up(false);
                    let only = Directions::Only(silent);
                    self.world.apply(Change::link(link, only, change));
                }
                self.say(format!("every link: {silent:?} is silent"));
            }
            _ => {}
        }
    }

    fn cut(&mut self) {
        let at = self.dice.below(self.topology.links.len() as u64) as usize;
        let link = self.topology.links[at].0;
        let ups = self.dice.pick(&[
            [false, false],
            [false, true],
            [true, false],
            [true, true],
            [true, true],
        ]);
        for (direction, up) in Directions::Both.iter().zip(ups) {
            let change = LinkChange::Up(up);
            let only = Directions::Only(direction);
            self.world.apply(Change::link(link, only, change));
        }
        self.say(format!("{link}: up {ups:?}"));
    }

    fn admin(&mut self) {
        let link = self.dice.pick(&self.topology.access);
        let up = self.dice.below(2) == 0;
        self.world.apply(Change::Admin { link, up });
        self.say(format!("{link}: taken up {up}"));
    }

    fn readdress(&mut self) {
        let link = self.dice.pick(&self.topology.access);
        self.world.apply(Change::Readdress {
            node: self.topology.client,
            link,
            address: None,
        });
        self.say(format!("{link}: another address"));
    }

    fn rebind(&mut self) {
        if self.topology.nats.is_empty() {
            return;
        }
        let node = self.dice.pick(&self.topology.nats);
        self.world.apply(Change::Rebind { node });
        self.say("a NAT forgets");
    }

    fn change_link(&mut self) {
        let link = self.dice.pick(&self.topology.access);
        let fresh = random_link(&mut self.dice);
        for change in [
            LinkChange::Rate(fresh.rate),
            LinkChange::Delay(fresh.delay),
            LinkChange::Loss(fresh.loss),
            LinkChange::Jitter(fresh.jitter),
        ] {
            let change = Change::link(link, Directions::Both, change);
            self.world.apply(change);
        }
        self.say(format!("{link} changes"));
    }

    fn random_path(&mut self, server: bool) -> Option<PathId> {
        let paths: Vec<PathId> = self.connection(server)?.paths().collect();
        (!paths.is_empty()).then(|| self.dice.pick(&paths))
    }

    fn abandon(&mut self) {
        let server = self.dice.below(4) == 0;
        let Some(path) = self.random_path(server) else {
            return;
        };
        // If each side gave up the path the other relies on, the connection would end, by its idle
        // time-out at the latest. So both must have another path that answers.
        let has_other = |server| {
            let connection: Option<&Connection> = self.connection(server);
            connection.is_some_and(|connection| {
                let others = connection.paths().filter(|id| *id != path);
                let mut others = others.filter_map(|id| connection.path_stats(id));
                others.any(|path| path.validated && path.state == PathState::Active)
            })
        };
        if server && !(has_other(false) && has_other(true)) {
            return;
        }
        let last = self
            .connection(false)
            .and_then(|client| client.paths().last());
        if last == Some(path) {
            return;
        }
        let now = self.time_of(server);
        if let Some(connection) = self.host_mut(server).connection_mut(FIRST) {
            let done = connection.abandon_path(now, path, 99);
            self.say(format!("server {server} gives up path {path}: {done:?}"));
        }
    }

    fn set_options(&mut self) {
        let server = self.dice.below(2) == 0;
        let Some(path) = self.random_path(server) else {
            return;
        };
        let options = PathOptions {
            status: self.dice.pick(&[PathStatus::Available, PathStatus::Backup]),
            weight: self.dice.below(4) as u32 + 1,
            priority: self.dice.below(3) as i32,
            cost: self.dice.below(2) as u32,
            ..PathOptions::default()
        };
        if let Some(connection) = self.host_mut(server).connection_mut(FIRST) {
            let done = connection.set_path_options(path, options);
            self.say(format!(
                "server {server}: path {path} {options:?}: {done:?}"
            ));
        }
    }

    fn update_keys(&mut self) {
        let server = self.dice.below(2) == 0;
        let now = self.time_of(server);
        if let Some(connection) = self.host_mut(server).connection_mut(FIRST) {
            let done = connection.update_keys(now);
            self.say(format!("server {server} updates keys: {done:?}"));
        }
    }

    fn start_file(&mut self) {
        let server = self.dice.below(2) == 0;
        let bytes = self.dice.pick(&[0, 1, 1_000, 20_000, 60_000, 150_000]);
        let priority = self.dice.below(3) as i32;
        self.add_file(server, bytes, priority);
        self.say(format!("{bytes} bytes from the server: {server}"));
    }

    fn cut_stream(&mut self) {
        let server = self.dice.below(2) == 0;
        let files = self.host(server).get::<Files>();
        let running: Vec<_> = files.active().collect();
        if running.is_empty() {
            return;
        }
        let id = self.dice.pick(&running);
        let reset = self.dice.below(2) == 0;
        self.host_mut(server).get_mut::<Files>().forget(id);
        // Either call is refused if the stream has ended in the meantime.
        if reset {
            if let Some(sender) = self.host_mut(server).connection_mut(FIRST) {
                let _ = sender.reset(id, 5);
            }
        } else if let Some(receiver) = self.host_mut(!server).connection_mut(FIRST) {
            let _ = receiver.stop(id, 6);
        }
        self.say(format!("stream {id} is cut, reset {reset}"));
    }

    fn send_datagrams(&mut self) {
        let server = self.dice.below(2) == 0;
        let size = self.dice.below(1100) as usize;
        if let Some(connection) = self.host_mut(server).connection_mut(FIRST) {
            for _ in 0..5 {
                // It may be too large for the path or find the queue full; both are allowed.
                let _ = connection.send_datagram(Bytes::from(vec![9; size]));
            }
        }
    }

    fn ping(&mut self) {
        let server = self.dice.below(2) == 0;
        if let Some(path) = self.random_path(server)
            && let Some(connection) = self.host_mut(server).connection_mut(FIRST)
        {
            let _ = connection.ping(path);
        }
    }

    /// A server cannot reach a client whose NAT has forgotten it until the client speaks.
    pub(super) fn ping_all(&mut self) {
        if let Some(client) = self.host_mut(false).connection_mut(FIRST) {
            let paths: Vec<PathId> = client.paths().collect();
            for path in paths {
                client.ping(path).expect("an open path");
            }
        }
    }

    /// Restores the original network, without any loss.
    pub(super) fn heal(&mut self) {
        for (link, configs) in self.topology.links.clone() {
            self.world.apply(Change::Admin { link, up: true });
            for (direction, config) in Directions::Both.iter().zip(configs) {
                let mut config = config;
                config.loss = Loss::None;
                config.jitter = Jitter::None;
                let change = LinkChange::Config(config);
                let only = Directions::Only(direction);
                self.world.apply(Change::link(link, only, change));
            }
        }
        self.say("healed");
    }
}
