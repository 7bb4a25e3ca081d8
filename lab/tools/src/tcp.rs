//! Connections to the server that a tool loads.

use crate::ToolError;
use crate::error::trying;
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Connects to the first of the address's endpoints that answers; `patience` bounds each try.
pub(crate) fn connect(address: &str, patience: Option<Duration>) -> Result<TcpStream, ToolError> {
    let endpoints = trying(format!("resolve {address}"), address.to_socket_addrs())?;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no addresses");
    for endpoint in endpoints {
        let tried = match patience {
            Some(patience) => TcpStream::connect_timeout(&endpoint, patience),
            None => TcpStream::connect(endpoint),
        };
        match tried {
            Ok(stream) => return Ok(stream),
            Err(why) => last = why,
        }
    }
    Err(match last.kind() {
        ErrorKind::ConnectionRefused => ToolError::Refused { address: address.to_string() },
        _ => ToolError::System { what: format!("connect to {address}"), source: last },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_refused_connection_names_the_address() {
        // Bound, then closed: nobody listens there now.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        for patience in [None, Some(Duration::from_secs(1))] {
            let why = connect(&address, patience).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{address} refused the connection")), "{why}");
        }
    }
}
