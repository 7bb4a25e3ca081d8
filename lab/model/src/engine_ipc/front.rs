//! A thread of the API front: takes requests from its clients, passes them to the core, streams tokens back.

use super::Shape;
use super::client::MESSAGE;
use super::message::{Message, SIZE};
use crate::burn::Burner;
use crate::polled::{POLL_MS, epoll_over};
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes read from the core at once: a whole number of messages.
const READ: usize = 64 * SIZE;

/// Serves until the run is over. A front that fails hangs up, so that the core does not wait for it.
pub(super) fn serve(shape: &Shape, clients: &[TcpStream], core: &UnixStream, stop: &AtomicBool) -> io::Result<()> {
    let result = until_stopped(shape, clients, core, stop);
    if result.is_err() {
        let _ = core.shutdown(Shutdown::Both);
    }
    result
}

fn until_stopped(shape: &Shape, clients: &[TcpStream], core: &UnixStream, stop: &AtomicBool) -> io::Result<()> {
    let mut burner = Burner::new(shape.tokenise_ns.max(shape.detokenise_ns))?;
    let epoll = epoll_over(clients)?;
    // The core's socket comes after those of the clients.
    epoll.add(core, EpollEvent::new(EpollFlags::EPOLLIN, clients.len() as u64))?;
    let mut events = [EpollEvent::empty(); 64];
    let going = || !stop.load(Ordering::SeqCst);
    while going() {
        let ready = epoll.wait(&mut events, EpollTimeout::from(POLL_MS))?;
        for event in events[..ready].iter().take_while(|_| going()) {
            let heard = match clients.get(event.data() as usize) {
                Some(client) => pass_request(shape, client, event.data(), core, &mut burner)?,
                None => stream_tokens(shape, core, clients, &mut burner)?,
            };
            if !heard {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Takes a client's request; false if it has hung up.
fn pass_request(
    shape: &Shape,
    mut client: &TcpStream,
    connection: u64,
    mut core: &UnixStream,
    burner: &mut Burner,
) -> io::Result<bool> {
    match client.read(&mut [0; MESSAGE])? {
        0 => return Ok(false),
        MESSAGE => {}
        // Written whole, and loopback TCP never splits so little.
        n => return Err(io::Error::other(format!("a request of {MESSAGE} bytes came in parts: {n}"))),
    }
    burner.burn(shape.tokenise_ns)?;
    core.write_all(&Message { connection, tokens: shape.tokens }.bytes())?;
    Ok(true)
}

/// Passes on what the core sent; false if it has hung up.
fn stream_tokens(shape: &Shape, mut core: &UnixStream, clients: &[TcpStream], burner: &mut Burner) -> io::Result<bool> {
    let mut bytes = [0; READ];
    let length = core.read(&mut bytes)?;
    for message in Message::all(&bytes[..length])? {
        burner.burn(shape.detokenise_ns)?;
        if let Some(mut client) = clients.get(message.connection as usize) {
            client.write_all(&[0; MESSAGE])?;
        }
    }
    Ok(length > 0)
}
