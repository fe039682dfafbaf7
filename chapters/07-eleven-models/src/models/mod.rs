//! The eleven.

mod epoll_edge;
mod epoll_level;
mod io_uring;
mod poll;

use crate::model::Model;

/// All of them, in the order of the chapter.
pub const MODELS: [&dyn Model; 4] =
    [&poll::Poll, &epoll_level::EpollLevel, &epoll_edge::EpollEdge, &io_uring::IoUring];
