//! Everybody who is connected, by a token that the kernel hands back with each event.

use crate::{
    connection::Connection,
    plan::StallKind,
    record::{Record, StallRecord},
};
use mio::Token;

// A token holds an index and a generation of 32 bits each.
const _: () = assert!(usize::BITS == 64);

/// A connection, and what it is for.
pub(crate) struct Client {
    pub connection: Connection,
    pub role: Role,
}

/// What a connection is for, and what has become of it so far.
pub(crate) enum Role {
    /// It asks.
    Request(Record),
    /// It stalls.
    Stalled(StallRecord, StallKind),
}

/// Clients by token. A token names a place and who sat there, so that it means nobody else later.
#[derive(Default)]
pub(crate) struct Slab {
    places: Vec<(u32, Option<Client>)>,
    free: Vec<u32>,
    count: usize,
}

impl Slab {
    /// The token that the next client will get.
    pub fn vacancy(&self) -> Token {
        let index = self.free.last().map_or(self.places.len(), |index| *index as usize);
        let generation = self.places.get(index).map_or(0, |place| place.0);
        Token((generation as usize) << 32 | index)
    }

    /// Gives `client` the token of [`Slab::vacancy`].
    pub fn insert(&mut self, client: Client) -> Token {
        let token = self.vacancy();
        if self.free.pop().is_none() {
            self.places.push((0, None));
        }
        self.places[token.0 & 0xFFFF_FFFF].1 = Some(client);
        self.count += 1;
        token
    }

    /// Who has this token, if they are still there.
    pub fn get(&mut self, token: Token) -> Option<&mut Client> {
        let place = self.places.get_mut(token.0 & 0xFFFF_FFFF)?;
        if place.0 as usize == token.0 >> 32 { place.1.as_mut() } else { None }
    }

    /// Takes out who has this token.
    pub fn remove(&mut self, token: Token) -> Option<Client> {
        self.get(token)?;
        let index = token.0 & 0xFFFF_FFFF;
        let place = &mut self.places[index];
        // The last generation is the timer's token with the last index: never reached.
        place.0 = (place.0 + 1) & 0x7FFF_FFFF;
        self.free.push(index as u32);
        self.count -= 1;
        place.1.take()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Everybody who is there now.
    pub fn tokens(&self) -> Vec<Token> {
        let taken = self.places.iter().enumerate().filter(|(_, place)| place.1.is_some());
        taken.map(|(index, place)| Token((place.0 as usize) << 32 | index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connection::new_socket, record::StallEnd};
    use nix::sys::socket::SockaddrStorage;
    use std::net::{SocketAddr, TcpListener};

    fn client(target: SocketAddr) -> Client {
        let socket = new_socket(target, None).unwrap();
        let connection = Connection::open(socket, &SockaddrStorage::from(target), 7).unwrap();
        let record = StallRecord {
            stall: 0,
            step: 0,
            started_ns: 0,
            connected_ns: 0,
            ended_ns: 0,
            end: StallEnd::Held,
            bytes: 0,
        };
        Client { connection, role: Role::Stalled(record, StallKind::Silent) }
    }

    #[test]
    fn a_token_means_nobody_else_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let mut slab = Slab::default();
        let first = slab.insert(client(target));
        assert!(slab.get(first).is_some());
        assert!(slab.remove(first).is_some() && slab.remove(first).is_none());
        let announced = slab.vacancy();
        let second = slab.insert(client(target));
        assert_eq!(announced, second);
        // The same place, and an event for the first must not reach the second.
        assert_eq!(first.0 & 0xFFFF_FFFF, second.0 & 0xFFFF_FFFF);
        assert!(slab.get(first).is_none() && slab.get(second).is_some());
        assert_eq!((slab.count(), slab.tokens()), (1, vec![second]));
    }
}
