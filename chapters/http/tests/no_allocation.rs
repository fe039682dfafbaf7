//! No request allocates: the buffers of a connection that becomes idle serve the next one that is busy.
//!
//! The allocator of this test counts. It has its own file, since it counts everything in its process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use http::{Connection, Core, Limits, OddEven, Wants};

struct Counting;

thread_local! {
    /// Of this thread only: the harness has others.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one hands every call on")]
// SAFETY: every call is handed to the system's allocator unchanged, so that its guarantees are ours.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the promises of `alloc`, which are the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: `pointer` came from `System`, with this layout; the caller answers for `size`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of `rounds` rounds in which ten connections get `pieces` and are idle again.
fn allocations(
    core: &mut Core<OddEven>,
    connections: &mut [Connection],
    pieces: &[&[u8]],
    rounds: u64,
) -> usize {
    let before = ALLOCATIONS.get();
    for now_ms in 0..rounds {
        core.clock(now_ms);
        for piece in pieces {
            for connection in connections.iter_mut() {
                connection.feed(core, piece, now_ms);
            }
        }
        for connection in connections.iter_mut() {
            loop {
                let length = connection.unsent().len();
                if length == 0 && connection.wants() != Wants::Wait {
                    break;
                }
                connection.sent(core, length, now_ms);
                connection.expire(core, now_ms);
            }
            assert_eq!(connection.wants(), Wants::Read);
        }
    }
    ALLOCATIONS.get() - before
}

#[test]
fn no_request_allocates() {
    let mut core = Core::new(Limits::default(), OddEven);
    let mut connections: Vec<_> = (0..10).map(|_| Connection::new(&core, 0)).collect();
    let get = b"GET /parity/7 HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n";
    let pipeline = get.repeat(16);
    for (name, pieces) in [
        ("a GET", vec![&get[..]]),
        ("a GET in pieces", vec![&get[..3], &get[3..20], &get[20..]]),
        ("sixteen in one packet", vec![&pipeline[..]]),
        ("sixteen in two packets", vec![&pipeline[..100], &pipeline[100..]]),
        ("an error", vec![b"BREW /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"]),
        ("a large answer", vec![b"GET /bytes/16777216 HTTP/1.1\r\nHost: x\r\n\r\n"]),
        ("a late answer", vec![b"GET /slow/0 HTTP/1.1\r\nHost: x\r\n\r\n"]),
        ("a body", vec![b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe", b"llo"]),
        (
            "chunks",
            vec![
                b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
                b"llo\r\n0\r\n\r\n",
            ],
        ),
    ] {
        let first = allocations(&mut core, &mut connections, &pieces, 2); // The buffers grow to what they need.
        let then = allocations(&mut core, &mut connections, &pieces, 100);
        assert_eq!(then, 0, "{name}: {then} allocations in 100 rounds, {first} in the two before");
    }
    // That the count can be other than zero: the first connection of a core has no spare buffer.
    let mut fresh = Core::new(Limits::default(), OddEven);
    let mut one = [Connection::new(&fresh, 0)];
    assert_ne!(allocations(&mut fresh, &mut one, &[get], 1), 0);
}
