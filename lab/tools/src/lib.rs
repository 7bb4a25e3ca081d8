//! Programs of the lab's own, for bundles whose usual program Debian lacks. The agent runs them as `@NAME`; each prints one JSON
//! object on standard output.

mod arguments;
mod completions;
mod error;
mod futex_pingpong;
mod gguf;
mod http;
mod latency;
mod memcached;
mod random_gguf;
mod tcp;
mod vocabulary;

pub use error::ToolError;
use serde_json::Value;

/// What a tool is: its arguments in, its JSON out.
type Tool = fn(&[String]) -> Result<Value, ToolError>;

/// Every tool by its name.
const TOOLS: [(&str, Tool); 4] = [
    ("completions", completions::run),
    ("futex-pingpong", futex_pingpong::run),
    ("memcached-load", memcached::run),
    ("random-gguf", random_gguf::run),
];

/// Runs a tool with its arguments and returns what it prints.
pub fn run(name: &str, arguments: &[String]) -> Result<Value, ToolError> {
    match TOOLS.iter().find(|(known, _)| *known == name) {
        Some((_, tool)) => tool(arguments),
        None => {
            let known = TOOLS.map(|(known, _)| known).join(" ");
            Err(ToolError::Unknown { name: name.to_string(), known })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tool_is_told_of_the_known_ones() {
        let why = run("memtier", &[]).unwrap_err().to_string();
        assert!(why.contains("`memtier`") && why.contains("memcached-load random-gguf"), "{why}");
        for (name, _) in TOOLS {
            let why = run(name, &["--no-such-flag".into(), "1".into()]).unwrap_err();
            assert!(matches!(why, ToolError::UnknownFlag { .. } | ToolError::MissingFlag(_)), "{name}: {why}");
        }
    }
}
