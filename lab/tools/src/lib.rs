//! Programs of the lab's own, for bundles whose usual program Debian lacks. The agent runs them as `@NAME`; each prints one JSON
//! object on standard output.

/// Why a tool gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No tool of this name.
    #[error("no tool is named `{0}`")]
    Unknown(String),
}

/// Runs a tool with its arguments and returns what it prints.
pub fn run(name: &str, _arguments: &[String]) -> Result<serde_json::Value, ToolError> {
    Err(ToolError::Unknown(name.to_string()))
}
