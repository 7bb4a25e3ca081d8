//! The load against a server of the test's own, and against a real one where there is one.

use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

fn load(address: &str, flags: &str) -> Result<Value, ToolError> {
    let line = format!("--address {address} {flags}");
    run(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
}

/// How the fake server answers.
#[derive(Clone, Copy)]
enum Manner {
    /// In pieces of this many bytes.
    Pieces(usize),
    /// With an error from this request of a connection on.
    ErrorAt(usize),
    /// By closing at this request of a connection.
    CloseAt(usize),
}

/// A server with a store per connection beside the one that `preload` left. Returns its address.
fn fake(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let store = std::sync::Arc::new(std::sync::Mutex::new(BTreeMap::new()));
        for stream in listener.incoming() {
            let store = store.clone();
            // A client that is done resets its connections.
            std::thread::spawn(move || answer_all(stream?, manner, &store));
        }
    });
    address
}

type Store = std::sync::Mutex<BTreeMap<String, Vec<u8>>>;

fn answer_all(mut stream: TcpStream, manner: Manner, store: &Store) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    for n in 0.. {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            ["set", key, "0", "0", size] => {
                let mut value = vec![0; size.parse::<usize>().unwrap() + 2];
                lines.read_exact(&mut value)?;
                assert!(value.ends_with(b"\r\n"));
                value.truncate(value.len() - 2);
                store.lock().unwrap().insert((*key).to_string(), value);
                b"STORED\r\n".to_vec()
            }
            ["get", key] => match store.lock().unwrap().get(*key) {
                Some(value) => {
                    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
                }
                None => b"END\r\n".to_vec(),
            },
            other => panic!("{other:?}"),
        };
        match manner {
            Manner::Pieces(size) => {
                for piece in answer.chunks(size) {
                    stream.write_all(piece)?;
                    std::thread::yield_now();
                }
            }
            Manner::ErrorAt(at) if n >= at => stream.write_all(b"SERVER_ERROR out of memory storing object\r\n")?,
            Manner::CloseAt(at) if n >= at => break,
            Manner::ErrorAt(_) | Manner::CloseAt(_) => stream.write_all(&answer)?,
        }
    }
    Ok(())
}

fn check(record: &Value, threads: u64, connections: u64) {
    let number = |name: &str| record[name].as_f64().unwrap();
    assert_eq!(record["tool"], "memcached-load");
    assert!(number("ops") > 0.0, "{record}");
    assert_eq!(number("ops"), number("sets") + number("gets"));
    assert_eq!(number("ops_per_s"), number("ops") / number("duration_s"));
    assert_eq!((record["threads"].as_u64(), record["connections"].as_u64()), (Some(threads), Some(connections)));
    let latency = |name: &str| record["latency_ms"][name].as_f64().unwrap();
    assert!(0.0 < latency("min") && latency("min") <= latency("p50") && latency("p50") <= latency("p99.99"));
    assert!(latency("p99.99") <= latency("max") && record["histogram"].as_str().unwrap().starts_with("HIST"));
}

#[test]
fn answers_in_pieces_are_put_together() {
    let address = fake(Manner::Pieces(3));
    let flags = "--threads 2 --clients 3 --keys 20 --ratio 1:2 --pipeline 4 --duration-ms 300 --warmup-ms 50";
    let record = load(&address, flags).unwrap();
    check(&record, 2, 6);
    assert_eq!(record["misses"], 0, "every key was stored before");
    // One SET to two GETs, but for what the window's ends cut off: at most a round per request in flight.
    let (sets, gets) = (record["sets"].as_f64().unwrap(), record["gets"].as_f64().unwrap());
    assert!((2.0 * sets - gets).abs() <= 2.0 * 2.0 * 6.0 * 4.0, "{sets} {gets}");
}

#[test]
fn values_larger_than_a_socket_buffer_get_through() {
    let address = fake(Manner::Pieces(100_000));
    let flags = "--threads 1 --clients 2 --keys 3 --ratio 1:1 --pipeline 16 --data-size 900000 --duration-ms 500";
    check(&load(&address, flags).unwrap(), 1, 2);
}

#[test]
fn gets_of_an_empty_server_are_misses() {
    let address = fake(Manner::Pieces(64));
    let record = load(&address, "--threads 1 --clients 1 --ratio 0:1 --preload no --duration-ms 100").unwrap();
    assert_eq!(record["misses"], record["gets"]);
    assert_eq!((&record["sets"], &record["latency_ms_sets"]), (&Value::from(0), &Value::Null));
}

#[test]
fn an_error_is_an_error() {
    let flags = "--threads 2 --clients 2 --keys 2 --duration-ms 20000";
    let began = Instant::now();
    for (manner, said) in [
        (Manner::ErrorAt(5), "SERVER_ERROR out of memory"),
        (Manner::CloseAt(5), "closed"),
        (Manner::ErrorAt(0), "SERVER_ERROR out of memory"),
        (Manner::CloseAt(0), "closed"),
    ] {
        let address = fake(manner);
        let why = load(&address, flags).unwrap_err().to_string();
        // A close with unread bytes is a reset.
        let closed = said == "closed" && (why.contains("reset") || why.contains("Broken pipe"));
        assert!(why.contains(&address) && (why.contains(said) || closed), "{why}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "an error ends the run at once");
}

#[test]
fn flags_are_checked_before_anything_is_done() {
    for flags in [
        "--ratio 0:0 --duration-ms 1",
        "--duration-ms 0",
        "",
        "--duration-ms 1 --keys 0",
        "--test-time 3 --duration-ms 1",
    ] {
        let why = load("127.0.0.1:1", flags).unwrap_err();
        assert!(
            matches!(
                why,
                ToolError::BadValue { .. } | ToolError::MissingFlag("duration-ms") | ToolError::UnknownFlag { .. }
            ),
            "{flags}: {why}"
        );
    }
    assert!(
        matches!(load("127.0.0.1:1", "--duration-ms 1"), Err(ToolError::Refused { address }) if address == Arguments::local(1))
    );
}

#[test]
fn a_real_memcached_is_loaded() {
    // Bound, then closed: free for the moment.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = address.port().to_string();
    let server =
        Command::new("memcached").args(["-l", "127.0.0.1", "-p", &port, "-u", "nobody"]).stderr(Stdio::null()).spawn();
    let Ok(mut server) = server else {
        println!("skipped: no memcached in PATH");
        return;
    };
    while TcpStream::connect(address).is_err() {
        assert!(server.try_wait().unwrap().is_none(), "memcached ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let record = load(&address.to_string(), "--threads 2 --clients 5 --keys 1000 --pipeline 2 --duration-ms 500");
    server.kill().unwrap();
    server.wait().unwrap();
    let record = record.unwrap();
    check(&record, 2, 10);
    assert_eq!(record["misses"], 0);
}
