//! What the kernel and a ring's owner have agreed on: structures and numbers of `<linux/io_uring.h>`.
//!
//! libc has the numbers of the three system calls and nothing of this. The kernel never changes it: it
//! only adds. A union becomes its largest member, and fields that we leave at zero are not named one by
//! one.

use std::mem::{offset_of, size_of};

// io_uring_setup: `flags`, and the `features` that it answers with.
pub const SETUP_CLAMP: u32 = 1 << 4;
pub const SETUP_SUBMIT_ALL: u32 = 1 << 7;
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
pub const FEAT_SINGLE_MMAP: u32 = 1 << 0;
pub const FEAT_NODROP: u32 = 1 << 1;
pub const FEAT_EXT_ARG: u32 = 1 << 8;
pub const FEAT_CQE_SKIP: u32 = 1 << 11;

// io_uring_enter: `flags`.
pub const ENTER_GETEVENTS: u32 = 1 << 0;
pub const ENTER_EXT_ARG: u32 = 1 << 3;

// io_uring_register: `opcode`.
pub const REGISTER_PROBE: u32 = 8;
pub const REGISTER_PBUF_RING: u32 = 22;

// mmap: `offset`.
pub const OFF_SQ_RING: i64 = 0;
pub const OFF_SQES: i64 = 0x1000_0000;

// The flags that the kernel keeps beside the submission queue.
pub const SQ_CQ_OVERFLOW: u32 = 1 << 1;

// `Sqe::opcode`.
pub const OP_POLL_ADD: u8 = 6;
pub const OP_ACCEPT: u8 = 13;
pub const OP_ASYNC_CANCEL: u8 = 14;
pub const OP_LINK_TIMEOUT: u8 = 15;
pub const OP_CLOSE: u8 = 19;
pub const OP_SEND: u8 = 26;
pub const OP_RECV: u8 = 27;

// `Sqe::flags`.
pub const SQE_LINK: u8 = 1 << 2;
pub const SQE_HARDLINK: u8 = 1 << 3;
pub const SQE_BUFFER_SELECT: u8 = 1 << 5;
pub const SQE_CQE_SKIP_SUCCESS: u8 = 1 << 6;

/// `Sqe::ioprio` of an accept that goes on.
pub const ACCEPT_MULTISHOT: u16 = 1 << 0;

// `Cqe::flags`; the number of the buffer stands above the first 16 bits.
pub const CQE_BUFFER: u32 = 1 << 0;
pub const CQE_MORE: u32 = 1 << 1;
pub const CQE_SOCK_NONEMPTY: u32 = 1 << 2;
pub const CQE_BUFFER_SHIFT: u32 = 16;

/// `ProbeOp::flags`.
pub const OP_SUPPORTED: u16 = 1 << 0;

/// `struct io_uring_params`: what the owner wants, and what the kernel has made.
#[repr(C)]
#[derive(Default)]
pub struct Params {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq_off: SqOffsets,
    pub cq_off: CqOffsets,
}
const _: () = assert!(size_of::<Params>() == 120 && offset_of!(Params, features) == 20);
const _: () = assert!(offset_of!(Params, sq_off) == 40 && offset_of!(Params, cq_off) == 80);

/// `struct io_sqring_offsets`: where in the mapping the parts of the submission queue are, in bytes.
#[repr(C)]
#[derive(Default)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: [u32; 3],
}
const _: () = assert!(size_of::<SqOffsets>() == 40 && offset_of!(SqOffsets, array) == 24);

/// `struct io_cqring_offsets`: the same of the completion queue.
#[repr(C)]
#[derive(Default)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub reserved: [u32; 3],
}
const _: () = assert!(size_of::<CqOffsets>() == 40 && offset_of!(CqOffsets, cqes) == 20);

/// `struct io_uring_sqe`: an operation, as it is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    pub offset: u64,
    pub address: u64,
    pub length: u32,
    /// `accept_flags`, `msg_flags`, `poll32_events`, `cancel_flags`: as the operation has them.
    pub of_operation: u32,
    pub user_data: u64,
    pub buffer_group: u16,
    pub personality: u16,
    pub file_index: u32,
    pub reserved: [u64; 2],
}
const _: () = assert!(size_of::<Sqe>() == 64 && offset_of!(Sqe, fd) == 4);
const _: () = assert!(offset_of!(Sqe, offset) == 8 && offset_of!(Sqe, address) == 16);
const _: () = assert!(offset_of!(Sqe, length) == 24 && offset_of!(Sqe, of_operation) == 28);
const _: () = assert!(offset_of!(Sqe, user_data) == 32 && offset_of!(Sqe, buffer_group) == 40);

/// `struct io_uring_cqe`: what became of an operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cqe {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
}
const _: () = assert!(size_of::<Cqe>() == 16 && offset_of!(Cqe, result) == 8);

/// `struct io_uring_buf`: a buffer that is lent to the kernel, without its last two bytes. In the first
/// entry of a buffer ring they are the ring's tail, which is not to be written by the way.
#[repr(C, packed(2))]
pub struct Buf {
    pub address: u64,
    pub length: u32,
    pub number: u16,
}
const _: () = assert!(size_of::<Buf>() == BUF_TAIL && offset_of!(Buf, number) == 12);

/// How far one entry of a buffer ring is from the next, and where in the first one the tail is, in bytes.
pub const BUF_BYTES: usize = 16;
pub const BUF_TAIL: usize = 14;

/// `struct io_uring_buf_reg`: where a buffer ring is.
#[repr(C)]
#[derive(Default)]
pub struct BufReg {
    pub ring_address: u64,
    pub ring_entries: u32,
    pub buffer_group: u16,
    pub flags: u16,
    pub reserved: [u64; 3],
}
const _: () = assert!(size_of::<BufReg>() == 40 && offset_of!(BufReg, buffer_group) == 12);

/// `struct io_uring_getevents_arg`: what `io_uring_enter` may wait with.
#[repr(C)]
#[derive(Default)]
pub struct GeteventsArg {
    pub signal_mask: u64,
    pub signal_mask_bytes: u32,
    pub reserved: u32,
    /// The address of a [`Timespec`], or zero to wait for as long as it takes.
    pub timeout: u64,
}
const _: () = assert!(size_of::<GeteventsArg>() == 24 && offset_of!(GeteventsArg, timeout) == 16);

/// `struct __kernel_timespec`: 64 bits each on every machine, which libc's is not.
#[repr(C)]
#[derive(Default)]
pub struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}
const _: () = assert!(size_of::<Timespec>() == 16 && offset_of!(Timespec, nanoseconds) == 8);

/// `struct io_uring_probe` with room for the answers about the first 64 operations.
#[repr(C)]
pub struct Probe {
    pub last_op: u8,
    pub ops_length: u8,
    pub reserved: [u16; 7],
    pub ops: [ProbeOp; 64],
}
const _: () = assert!(size_of::<Probe>() == 16 + 64 * 8 && offset_of!(Probe, ops) == 16);

/// `struct io_uring_probe_op`: whether the kernel knows an operation.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ProbeOp {
    pub op: u8,
    pub reserved: u8,
    pub flags: u16,
    pub reserved_too: u32,
}
const _: () = assert!(size_of::<ProbeOp>() == 8 && offset_of!(ProbeOp, flags) == 2);
