//! The eleven.

mod epoll_edge;
mod epoll_level;
mod poll;

use crate::model::Model;

/// All of them, in the order of the chapter.
pub const MODELS: [&dyn Model; 3] = [&poll::Poll, &epoll_level::EpollLevel, &epoll_edge::EpollEdge];
