//! The eleven.

mod epoll_edge;
mod epoll_level;
mod io_uring;
mod multireactor;
mod poll;
mod reactor;

use crate::model::Model;

/// All of them, in the order of the chapter.
pub const MODELS: [&dyn Model; 6] = [
    &poll::Poll,
    &epoll_level::EpollLevel,
    &epoll_edge::EpollEdge,
    &reactor::CallbackReactor,
    &multireactor::Multireactor,
    &io_uring::IoUring,
];
