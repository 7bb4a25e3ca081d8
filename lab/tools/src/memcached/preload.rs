//! Stores every key once, so that GETs find something.

use super::protocol::{Answer, Request, answer};
use crate::error::trying;
use crate::{ToolError, tcp};
use std::io::{Read, Write};
use std::net::SocketAddr;

/// Bytes of one batch, about; its answers, 8 bytes for some 50 or more of it, fit into any socket buffer, so that neither
/// side waits for the other.
const BATCH_BYTES: usize = 64 << 10;

/// SETs keys 0 to `keys` - 1 over one connection of its own.
pub(super) fn preload(address: SocketAddr, keys: u64, value: &[u8]) -> Result<(), ToolError> {
    let server = |said| ToolError::Server { server: address.to_string(), said };
    let what = format!("preload {address}");
    let mut stream = tcp::connect(address, None)?;
    trying(&what, stream.set_nodelay(true))?;
    let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
    let mut scratch = [0; 4096];
    let mut waiting = 0_u64;
    for key in 0..keys {
        trying(&what, Request::Set(key).append_to(&mut outgoing, value))?;
        waiting += 1;
        if outgoing.len() < BATCH_BYTES && key + 1 < keys {
            continue;
        }
        trying(&what, stream.write_all(&outgoing))?;
        outgoing.clear();
        while waiting > 0 {
            let mut taken = 0;
            while let Some((answer, size)) = answer(incoming.get(taken..).unwrap_or_default()).map_err(server)? {
                match answer {
                    Answer::Stored if waiting > 0 => waiting -= 1,
                    Answer::Stored | Answer::Value(_) | Answer::Miss => {
                        return Err(server(format!("{answer:?} came in answer to a preload's SETs")));
                    }
                }
                taken += size;
            }
            incoming.drain(..taken);
            if waiting > 0 {
                match trying(&what, stream.read(&mut scratch))? {
                    0 => return Err(server("the connection was closed while keys were preloaded".into())),
                    count => incoming.extend_from_slice(scratch.get(..count).unwrap_or_default()),
                }
            }
        }
    }
    Ok(())
}
