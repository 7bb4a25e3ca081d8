//! `completions`: a closed-loop client of an inference server, llama.cpp's or vLLM's, over HTTP.

use crate::arguments::Arguments;
use crate::latency::Latencies;
use crate::vocabulary::WORDS;
use crate::{ToolError, http};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};
use topolab_model::SplitMix64;

/// The percentiles that are printed.
const PRINTED: [(&str, f64); 3] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0)];
/// Between two questions whether the server is ready.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one such question may take.
const HEALTH_PATIENCE: Duration = Duration::from_secs(5);

/// Which API the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    /// llama-server's own (tools/server/README.md in llama.cpp's source).
    Llama,
    /// The one that vLLM and many others have.
    OpenAi,
}

impl Api {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "llama" => Some(Self::Llama),
            "openai" => Some(Self::OpenAi),
            _ => None,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Llama => "/completion",
            Self::OpenAi => "/v1/completions",
        }
    }

    /// Where the answer says how many tokens were generated.
    fn count(self) -> &'static str {
        match self {
            Self::Llama => "/tokens_predicted",
            Self::OpenAi => "/usage/completion_tokens",
        }
    }

    fn body(self, model: &str, prompt: &str, tokens: u64) -> Value {
        match self {
            Self::Llama => {
                json!({"prompt": prompt, "n_predict": tokens, "stream": false, "cache_prompt": false, "ignore_eos": true})
            }
            Self::OpenAi => json!({"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": true}),
        }
    }
}

/// The parsed flags.
struct Shape {
    address: SocketAddr,
    api: Api,
    requests: u64,
    concurrency: usize,
    prompt_tokens: u64,
    tokens: u64,
    /// The model's name; empty: the first that the server lists.
    model: String,
    seed: u64,
    wait_s: u64,
}

impl Shape {
    fn new(words: &[String]) -> Result<Self, ToolError> {
        let mut given = Arguments::new(words)?;
        let shape = Self {
            address: given.address("address", Arguments::local(8080))?,
            api: given.take("api", Some(Api::Llama), "llama or openai", Api::parse)?,
            requests: given.number("requests", 1..=1_000_000, None)?,
            concurrency: given.count("concurrency", 1..=1024, Some(1))?,
            prompt_tokens: given.number("prompt-tokens", 1..=1_000_000, Some(32))?,
            tokens: given.number("tokens", 1..=1_000_000, Some(32))?,
            model: given.take("model", Some(String::new()), "a model's name", |name| Some(name.to_string()))?,
            seed: given.number("seed", 0..=u64::MAX, Some(1))?,
            wait_s: given.number("wait-s", 0..=86_400, Some(120))?,
        };
        given.finish()?;
        Ok(shape)
    }

    fn server(&self, method: &str, path: &str, said: String) -> ToolError {
        ToolError::Server { server: format!("{method} http://{}{path}", self.address), said }
    }

    /// Asks, and reads a JSON answer with the status 200.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ToolError> {
        let response = http::request(self.address, method, path, body, None)?;
        let parsed = serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200);
        parsed.ok_or_else(|| {
            let (status, body) = (response.status, http::beginning(&response.body));
            self.server(method, path, format!("status {status}, body `{body}`"))
        })
    }

    /// Waits until `GET /health` answers 200: both servers answer before they have loaded their model.
    fn wait(&self) -> Result<(), ToolError> {
        let end = Instant::now() + Duration::from_secs(self.wait_s);
        loop {
            let last = match http::request(self.address, "GET", "/health", None, Some(HEALTH_PATIENCE)) {
                Ok(response) if response.status == 200 => return Ok(()),
                Ok(response) => format!("GET /health: {} `{}`", response.status, http::beginning(&response.body)),
                Err(why) => why.to_string(),
            };
            if Instant::now() >= end {
                return Err(ToolError::NotReady { address: self.address, seconds: self.wait_s, last });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The model's name for a request: only the OpenAI API wants one.
    fn model(&self) -> Result<String, ToolError> {
        if self.api == Api::Llama || !self.model.is_empty() {
            return Ok(self.model.clone());
        }
        let path = "/v1/models";
        let models = self.ask("GET", path, None)?;
        let name = models.pointer("/data/0/id").and_then(Value::as_str).map(str::to_string);
        name.ok_or_else(|| self.server("GET", path, "it lists no model; give --model".into()))
    }

    /// Has one prompt completed; returns how many tokens came.
    fn complete(&self, model: &str, prompt: &str) -> Result<u64, ToolError> {
        let path = self.api.path();
        let answer = self.ask("POST", path, Some(&self.api.body(model, prompt, self.tokens)))?;
        let count = answer.pointer(self.api.count()).and_then(Value::as_u64).filter(|count| *count > 0);
        count.ok_or_else(|| {
            let body = http::beginning(answer.to_string().as_bytes());
            self.server("POST", path, format!("no token counted at {} of `{body}`", self.api.count()))
        })
    }
}

/// A prompt of so many words, each of which is about one token.
fn prompt(words: u64, seed: u64) -> String {
    let mut rng = SplitMix64::new(seed);
    let mut word = |_| usize::try_from(rng.below(WORDS.len() as u64)).ok().and_then(|n| WORDS.get(n).copied());
    (0..words).filter_map(&mut word).collect::<Vec<_>>().join(" ")
}

/// What the requests took.
struct Tally {
    /// Seeds of the prompts that have not been asked yet.
    seeds: Vec<u64>,
    tokens: u64,
    busy: Duration,
    latencies: Latencies,
}

/// Runs the requests once.
pub(crate) fn run(words: &[String]) -> Result<Value, ToolError> {
    let shape = Shape::new(words)?;
    shape.wait()?;
    let model = shape.model()?;
    let mut rng = SplitMix64::new(shape.seed);
    let mut seeds: Vec<u64> = (0..shape.requests).map(|_| rng.bits()).collect();
    seeds.reverse();
    let tally = Mutex::new(Tally { seeds, tokens: 0, busy: Duration::ZERO, latencies: Latencies::new()? });
    let began = Instant::now();
    all(&shape, &model, &tally)?;
    let total = began.elapsed().as_secs_f64();
    let tally = tally.into_inner().map_err(|_| ToolError::Panicked)?;
    let mut latency = tally.latencies.summary_ms(&PRINTED);
    latency.retain(|name, _| name != "min" && name != "mean");
    Ok(json!({
        "tool": "completions",
        "requests": shape.requests,
        "tokens": tally.tokens,
        "inference_time_s": tally.busy.as_secs_f64() / shape.requests as f64,
        "total_s": total,
        "tokens_per_s": tally.tokens as f64 / total,
        "latency_ms": latency,
    }))
}

/// Runs `--concurrency` threads until every request is done or one has failed.
fn all(shape: &Shape, model: &str, tally: &Mutex<Tally>) -> Result<(), ToolError> {
    let stop = AtomicBool::new(false);
    let work = || {
        let result = one_after_another(shape, model, tally, &stop);
        if result.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        result
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..shape.concurrency {
            match Builder::new().name("complete".into()).spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    stop.store(true, Ordering::Relaxed);
                    return crate::error::trying("start a thread", Err(e));
                }
            }
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| ToolError::Panicked)?)
    })
}

/// One thread of the loop.
fn one_after_another(shape: &Shape, model: &str, tally: &Mutex<Tally>, stop: &AtomicBool) -> Result<(), ToolError> {
    while !stop.load(Ordering::Relaxed) {
        let Some(seed) = tally.lock().map_err(|_| ToolError::Panicked)?.seeds.pop() else { break };
        let prompt = prompt(shape.prompt_tokens, seed);
        let began = Instant::now();
        let tokens = shape.complete(model, &prompt)?;
        let took = began.elapsed();
        let mut tally = tally.lock().map_err(|_| ToolError::Panicked)?;
        tally.tokens += tokens;
        tally.busy += took;
        tally.latencies.record(took)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Serves what `answer` gives for a path and a body: a status, and a body of its own.
    fn fake(answer: fn(&str, &Value) -> (u16, String)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(stream?, answer));
            }
        });
        address
    }

    fn serve(mut stream: TcpStream, answer: fn(&str, &Value) -> (u16, String)) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            lines.read_line(&mut head)?;
        }
        let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        lines.read_exact(&mut body)?;
        let path = head.split(' ').nth(1).unwrap();
        let (status, said) = answer(path, &serde_json::from_slice(&body).unwrap_or(Value::Null));
        let (one, two) = said.split_at(said.len() / 2);
        write!(stream, "HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{one}\r\n", one.len())?;
        std::thread::sleep(Duration::from_millis(1));
        write!(stream, "{:x}\r\n{two}\r\n0\r\n\r\n", two.len())
    }

    fn record(address: &str, flags: &str) -> Result<Value, ToolError> {
        let line = format!("--address {address} {flags}");
        run(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn every_request_is_made_and_its_tokens_counted() {
        let llama = fake(|path, body| match path {
            "/health" => (200, "{\"status\":\"ok\"}".into()),
            "/completion" => {
                assert_eq!(body["prompt"].as_str().unwrap().split(' ').count(), 7);
                (200, json!({"content": "x", "tokens_predicted": body["n_predict"]}).to_string())
            }
            other => panic!("{other}"),
        });
        let done = record(&llama, "--requests 10 --concurrency 3 --prompt-tokens 7 --tokens 5").unwrap();
        assert_eq!((done["requests"].as_u64(), done["tokens"].as_u64()), (Some(10), Some(50)));
        assert!(done["inference_time_s"].as_f64() <= done["total_s"].as_f64(), "{done}");
        assert_eq!(done["latency_ms"].as_object().unwrap().keys().collect::<Vec<_>>(), ["p50", "p90", "p99", "max"]);
        let openai = fake(|path, body| match path {
            "/health" => (200, "{}".into()),
            "/v1/models" => (200, json!({"data": [{"id": "some/model"}]}).to_string()),
            "/v1/completions" => {
                assert_eq!(body["model"], "some/model");
                (200, json!({"usage": {"completion_tokens": body["max_tokens"]}}).to_string())
            }
            other => panic!("{other}"),
        });
        let done = record(&openai, "--api openai --requests 2 --tokens 9").unwrap();
        assert_eq!(done["tokens"], 18);
    }

    #[test]
    fn an_answer_without_counts_is_quoted() {
        let refusing = fake(|path, _| if path == "/health" { (200, "{}".into()) } else { (400, "too long".into()) });
        let why = record(&refusing, "--requests 9 --concurrency 2").unwrap_err().to_string();
        assert!(why.contains("/completion: status 400, body `too long`"), "{why}");
        let silent = fake(|path, _| (200, if path == "/health" { "{}".into() } else { "{\"content\":\"x\"}".into() }));
        let why = record(&silent, "--requests 1").unwrap_err().to_string();
        assert!(why.contains("/tokens_predicted") && why.contains("{\"content\":\"x\"}"), "{why}");
    }

    #[test]
    fn a_server_that_never_becomes_ready_is_an_error() {
        let loading = fake(|_, _| (503, "Loading model".into()));
        let why = record(&loading, "--requests 1 --wait-s 1").unwrap_err().to_string();
        assert!(why.contains("after 1 s") && why.contains("503 `Loading model`"), "{why}");
        let why = record("127.0.0.1:1", "--requests 1 --wait-s 0").unwrap_err().to_string();
        assert!(why.contains("127.0.0.1:1 refused"), "{why}");
    }

    #[test]
    fn a_seed_means_the_same_prompts() {
        assert_eq!(prompt(20, 3), prompt(20, 3));
        assert_ne!(prompt(20, 3), prompt(20, 4));
    }
}
