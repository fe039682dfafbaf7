//! The eleven.

mod epoll_edge;
mod epoll_level;
mod fork;
mod io_uring;
mod iterative;
mod multireactor;
mod poll;
mod prefork;
mod reactor;
mod thread_per_connection;
mod thread_pool;

use crate::model::Model;

/// All of them, in the order of the chapter.
pub const MODELS: [&dyn Model; 11] = [
    &iterative::Iterative,
    &fork::Fork,
    &prefork::Prefork,
    &thread_per_connection::ThreadPerConnection,
    &thread_pool::ThreadPool,
    &poll::Poll,
    &epoll_level::EpollLevel,
    &epoll_edge::EpollEdge,
    &reactor::CallbackReactor,
    &multireactor::Multireactor,
    &io_uring::IoUring,
];
