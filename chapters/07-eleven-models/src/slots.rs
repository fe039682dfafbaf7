//! Where the clients of a loop are kept: in slots that are used again, known by a token that is not.
//!
//! A descriptor's number, or a slot's, is given to the next client as soon as one leaves, while an event
//! of the first may still be under way in the batch that a wait returned. A token has the number of the
//! slot and that of its use, so that such an event finds nobody.

/// Things by their token.
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

/// For how many there is room from the beginning.
pub const ROOM: usize = 32 * 1024;

struct Slot<T> {
    uses: u32,
    thing: Option<T>,
}

impl<T> Slots<T> {
    /// None yet, and room for most houses: a room that grows is copied, and its old place is left to
    /// waste. What nobody has touched yet is not memory, only addresses.
    pub fn new() -> Slots<T> {
        Slots { slots: Vec::with_capacity(ROOM), free: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps `thing`, and says by what it is known: the slot below, the use above, at most 2^63 so that a
    /// caller has tokens of its own above that.
    pub fn insert(&mut self, thing: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, thing: None });
            u32::try_from(self.slots.len() - 1).expect("there are fewer descriptors than that")
        });
        let place = &mut self.slots[slot as usize];
        place.thing = Some(thing);
        token(slot, place.uses)
    }

    /// What is known by `token`, unless it has been removed.
    pub fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        let place = self.slots.get_mut(slot(token) as usize)?;
        (self::token(slot(token), place.uses) == token).then_some(place.thing.as_mut()).flatten()
    }

    /// The same by its slot alone: for a timer, which is the slot's.
    pub fn at_mut(&mut self, slot: u32) -> Option<(u64, &mut T)> {
        let place = self.slots.get_mut(slot as usize)?;
        let token = token(slot, place.uses);
        place.thing.as_mut().map(|thing| (token, thing))
    }

    /// Takes out what is known by `token`.
    pub fn remove(&mut self, token: u64) -> Option<T> {
        self.get_mut(token)?;
        let place = &mut self.slots[slot(token) as usize];
        place.uses = place.uses.wrapping_add(1) & (u32::MAX >> 1);
        self.free.push(slot(token));
        place.thing.take()
    }

    /// All tokens that are in use. Walks all slots: for a stop, not for a loop.
    pub fn tokens(&self) -> Vec<u64> {
        let used = self.slots.iter().enumerate().filter(|(_, place)| place.thing.is_some());
        used.map(|(slot, place)| token(u32::try_from(slot).unwrap_or(u32::MAX), place.uses))
            .collect()
    }
}

/// The slot of a token.
pub const fn slot(token: u64) -> u32 {
    token as u32
}

const fn token(slot: u32, uses: u32) -> u64 {
    (uses as u64) << 32 | slot as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_used_again_though_its_slot_is() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_eq!(slot(first), slot(second));
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.tokens(), [second]);
        assert_eq!(slots.len(), 1);
    }
}
