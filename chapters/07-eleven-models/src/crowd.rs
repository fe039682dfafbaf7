//! Threads that sleep in blocking calls: how many there are, and how all of them are told to stop.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};

use crate::interrupt;

/// All threads of a server but the first one.
pub struct Crowd {
    people: Mutex<People>,
    somebody_left: Condvar,
    /// Becomes readable when somebody has left whom [`Crowd::inside`] has found to be one too many.
    room: EventFd,
    places: usize,
}

struct People {
    /// How many there are, those included who are about to begin.
    inside: usize,
    threads: HashSet<Pthread>,
    is_room_wanted: bool,
}

/// A thread's place, from before it begins until it has ended, however it ends.
pub struct Place {
    crowd: Arc<Crowd>,
    thread: Option<Pthread>,
}

impl Crowd {
    /// Nobody yet, and at most so many.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn new(places: usize) -> anyhow::Result<Arc<Crowd>> {
        interrupt::allow()?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let room = EventFd::from_flags(flags).context("eventfd")?;
        let people = People { inside: 0, threads: HashSet::new(), is_room_wanted: false };
        Ok(Arc::new(Crowd {
            people: Mutex::new(people),
            somebody_left: Condvar::new(),
            room,
            places,
        }))
    }

    /// A place for one more. Whoever calls sees to it that there is one.
    pub fn place(self: &Arc<Crowd>) -> Place {
        self.people().inside += 1;
        Place { crowd: Arc::clone(self), thread: None }
    }

    /// How many there are. When no place is left, the next one to leave says so, see [`Crowd::room`].
    pub fn inside(&self) -> usize {
        let mut people = self.people();
        people.is_room_wanted |= people.inside >= self.places;
        people.inside
    }

    /// What becomes readable when there is room again.
    pub fn room(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    /// To be called when [`Crowd::room`] is readable.
    pub fn note_room(&self) {
        let _ = self.room.read();
    }

    // ANCHOR: stop
    /// After [`interrupt::stop`]: interrupts all of them, again and again until they have gone or the time
    /// is over.
    pub fn stop(&self, drain_ms: u64) {
        let ends_at = Instant::now() + Duration::from_millis(drain_ms);
        let mut people = self.people();
        while people.inside > 0 && Instant::now() < ends_at {
            for &thread in &people.threads {
                // A thread is here until it has taken the lock that we hold: all of these are alive.
                let _ = pthread_kill(thread, interrupt::INTERRUPT);
            }
            let again = Duration::from_millis(interrupt::AGAIN_MS.into());
            let waited =
                self.somebody_left.wait_timeout_while(people, again, |people| people.inside > 0);
            people = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    // ANCHOR_END: stop

    fn people(&self) -> MutexGuard<'_, People> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// To be called by the thread whose place it is, when it begins: from now on it is told of a stop.
    pub fn take(&mut self) {
        self.thread = Some(pthread_self());
        self.crowd.people().threads.insert(pthread_self());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut people = self.crowd.people();
        if let Some(thread) = self.thread {
            people.threads.remove(&thread);
        }
        people.inside -= 1;
        let is_room_wanted = std::mem::take(&mut people.is_room_wanted);
        drop(people);
        self.crowd.somebody_left.notify_one();
        if is_room_wanted {
            let _ = self.crowd.room.write(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
        poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], 0_u8) == Ok(1)
    }

    #[test]
    fn whoever_leaves_makes_room_also_by_a_panic() {
        let crowd = Crowd::new(1).unwrap();
        let mut place = crowd.place();
        assert_eq!(crowd.inside(), 1);
        assert!(!is_readable(crowd.room()));
        let thread = std::thread::spawn(move || {
            place.take();
            std::panic::resume_unwind(Box::new("the thread ends as it should not"));
        });
        thread.join().unwrap_err();
        assert!(is_readable(crowd.room()));
        crowd.note_room();
        assert!(!is_readable(crowd.room()));
        assert_eq!(crowd.inside(), 0);
        assert!(crowd.people().threads.is_empty());
    }
}
