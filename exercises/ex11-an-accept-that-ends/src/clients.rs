//! The clients of a reactor by their tokens: a number of a place, and how often it has been given away.
//!
//! A completion says by its token whose it is. When it comes late, the client may have gone and another
//! one have its place; the generation tells them apart, as long as a place is not given away two
//! thousand million times meanwhile.

/// How many bits of a token are the number of the place.
const PLACE_BITS: u32 = 32;

/// The last bit is free for who uses the token: no generation reaches it.
const GENERATION_MAX: u32 = (1 << 31) - 1;

/// A collection of clients.
#[derive(Debug)]
pub struct Clients<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    client: Option<T>,
}

impl<T> Clients<T> {
    /// Nobody yet.
    pub fn new() -> Clients<T> {
        Clients { places: Vec::new(), free: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a client in, and says by which token it is known. The place that became free last is the
    /// first to be given away again: it is warm.
    pub fn insert(&mut self, client: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, client: None });
            u32::try_from(self.places.len() - 1)
                .expect("fewer clients than descriptors there can be")
        });
        let at = &mut self.places[place as usize];
        at.client = Some(client);
        u64::from(at.generation) << PLACE_BITS | u64::from(place)
    }

    /// The client, unless it has gone.
    pub fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        let at = self.places.get_mut(token as u32 as usize)?;
        let is_its = u64::from(at.generation) == token >> PLACE_BITS;
        at.client.as_mut().filter(|_| is_its)
    }

    /// Lets a client go, unless it has gone.
    pub fn remove(&mut self, token: u64) -> Option<T> {
        self.get_mut(token)?;
        let place = token as u32;
        let at = &mut self.places[place as usize];
        at.generation = (at.generation + 1) & GENERATION_MAX;
        self.free.push(place);
        at.client.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_one_who_has_gone_is_nobodys() {
        let mut clients = Clients::new();
        let first = clients.insert("first");
        assert_eq!(clients.remove(first), Some("first"));
        let second = clients.insert("second");
        assert_eq!(second as u32, first as u32, "the same place");
        assert_eq!(clients.get_mut(first), None);
        assert_eq!(clients.remove(first), None);
        assert_eq!(clients.get_mut(second), Some(&mut "second"));
        assert_eq!(clients.len(), 1);
    }

    #[test]
    fn a_generation_never_reaches_the_last_bit() {
        let mut clients = Clients::new();
        let token = clients.insert(());
        clients.remove(token);
        clients.places[0].generation = GENERATION_MAX;
        let last = clients.insert(());
        assert_eq!(last >> 63, 0);
        clients.remove(last);
        assert_eq!(clients.insert(()), 0);
    }
}
