//! The eleven.

mod epoll_level;

use crate::model::Model;

/// All of them, in the order of the chapter.
pub const MODELS: [&dyn Model; 1] = [&epoll_level::EpollLevel];
