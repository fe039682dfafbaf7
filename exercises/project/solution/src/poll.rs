//! A reactor that is told who is ready: epoll, for a machine without io_uring.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

use crate::frame::Session;
use crate::{PAUSE, has_too_little, patience};

/// The tokens of what is no client. Descriptors are smaller.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// One listener and its clients.
pub struct Reactor<'a> {
    /// Dropped when nobody is let in any more.
    listener: Option<TcpListener>,
    /// When nobody is let in for a while: until then.
    pause: Option<Instant>,
    stop: &'a EventFd,
    epoll: Epoll,
    clients: HashMap<u64, Client>,
}

struct Client {
    socket: TcpStream,
    session: Session,
    answered: u32,
    deadline: Instant,
    /// What its epoll waits for.
    interest: EpollFlags,
}

impl<'a> Reactor<'a> {
    /// A reactor that ends when `stop` can be read and its last client has left.
    pub fn new(listener: TcpListener, stop: &'a EventFd) -> anyhow::Result<Reactor<'a>> {
        listener.set_nonblocking(true).context("ioctl(FIONBIO)")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let listener = Some(listener);
        Ok(Reactor { listener, pause: None, stop, epoll, clients: HashMap::new() })
    }

    /// Serves, to the end.
    pub fn serve(mut self) -> anyhow::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        while self.listener.is_some() || !self.clients.is_empty() {
            let ready = match self.epoll.wait(&mut events, self.timeout()) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("epoll_wait")?,
            };
            for event in &events[..ready] {
                match event.data() {
                    LISTENER => self.accept()?,
                    STOP => self.leave()?,
                    token => self.converse(token),
                }
            }
            let now = Instant::now();
            self.clients.retain(|_, client| client.deadline > now);
            if self.pause.is_some_and(|it| it <= now) {
                self.pause = None;
                self.watch(EpollFlags::EPOLLIN)?;
            }
        }
        Ok(())
    }

    /// Simplified: all deadlines are looked at each time. Many thousand clients would want a heap.
    fn timeout(&self) -> EpollTimeout {
        let first = self.clients.values().map(|it| it.deadline).chain(self.pause).min();
        let Some(first) = first else { return EpollTimeout::NONE };
        let left = first.saturating_duration_since(Instant::now());
        EpollTimeout::from(u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        // One a turn: what is ready stays ready, and the others have waited too.
        let error = match listener.accept() {
            Ok((socket, _)) => return self.take_in(socket),
            Err(error) => error,
        };
        match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
            errno if has_too_little(errno) => {
                self.pause = Some(Instant::now() + PAUSE);
                self.watch(EpollFlags::empty())
            }
            Errno::EBADF | Errno::EINVAL | Errno::ENOTSOCK => Err(error).context("accept4"),
            _ => Ok(()),
        }
    }

    fn take_in(&mut self, socket: TcpStream) -> anyhow::Result<()> {
        socket.set_nonblocking(true).context("ioctl(FIONBIO)")?;
        let token = u64::try_from(socket.as_raw_fd())?;
        let interest = EpollFlags::EPOLLIN;
        self.epoll.add(&socket, EpollEvent::new(interest, token)).context("epoll_ctl")?;
        let deadline = Instant::now() + patience();
        let session = Session::default();
        self.clients.insert(token, Client { socket, session, answered: 0, deadline, interest });
        Ok(())
    }

    fn watch(&self, interest: EpollFlags) -> anyhow::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let mut event = EpollEvent::new(interest, LISTENER);
        self.epoll.modify(listener, &mut event).context("epoll_ctl")
    }

    /// Lets nobody in any more but those who have come already, and ends with the last client.
    fn leave(&mut self) -> anyhow::Result<()> {
        while let Some(Ok((socket, _))) = self.listener.as_ref().map(TcpListener::accept) {
            self.take_in(socket)?;
        }
        self.listener = None;
        // It stays readable, for the other reactors.
        self.epoll.delete(self.stop).context("epoll_ctl")
    }

    fn converse(&mut self, token: u64) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let goes_on = client.advance().is_ok_and(|it| it);
        let wanted = client.wanted();
        if !goes_on {
            self.clients.remove(&token);
        } else if client.interest != wanted {
            client.interest = wanted;
            let mut event = EpollEvent::new(wanted, token);
            if self.epoll.modify(&client.socket, &mut event).is_err() {
                self.clients.remove(&token);
            }
        }
    }
}

impl Client {
    /// Reads, answers and sends as far as that goes without waiting: whether it has to go on later.
    fn advance(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        // A client that always has more gets its turn again, after the others.
        for _ in 0..8 {
            if self.session.unsent().is_empty() && self.session.is_over() {
                self.hang_up()?;
                return Ok(false);
            }
            let result = if self.session.unsent().is_empty() {
                self.socket.read(&mut bytes).map(|length| self.session.feed(&bytes[..length]))
            } else {
                self.socket.write(self.session.unsent()).map(|length| self.session.sent(length))
            };
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            if self.session.unsent().is_empty() && self.session.answered() > self.answered {
                self.answered = self.session.answered();
                self.deadline = Instant::now() + patience();
            }
        }
        Ok(true)
    }

    fn wanted(&self) -> EpollFlags {
        match self.session.unsent() {
            b"" => EpollFlags::EPOLLIN,
            _ => EpollFlags::EPOLLOUT,
        }
    }

    /// Says that no more will come, and takes what has come: a close with unread bytes is a reset.
    fn hang_up(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        let mut bytes = [0; 4096];
        (0..16).all(|_| matches!(self.socket.read(&mut bytes), Ok(1..)));
        Ok(())
    }
}
