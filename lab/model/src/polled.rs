//! Epoll over a thread's connections.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::io;
use std::os::fd::AsFd;

/// How long a thread waits in epoll before it looks whether the run is over.
pub(crate) const POLL_MS: u8 = 200;

/// An epoll over connections, whose data is the connection's index.
pub(crate) fn epoll_over<E: AsFd>(ends: &[E]) -> io::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (index, end) in ends.iter().enumerate() {
        epoll.add(end, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
    }
    Ok(epoll)
}
