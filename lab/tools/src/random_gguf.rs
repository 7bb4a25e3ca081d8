//! `random-gguf`: a model file for llama.cpp whose weights are random. What inference computes does not depend on what comes
//! out of it, so a benchmark needs no trained model, and none has to be fetched.

use crate::ToolError;
use crate::arguments::Arguments;
use crate::error::trying;
use crate::gguf::{ALIGNMENT, Metadata, Tensor};
use crate::vocabulary::{self, BEGIN, END, Token, UNKNOWN};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use topolab_model::SplitMix64;

/// Weights that are drawn and written at once.
const CHUNK: usize = 1 << 14;

/// The parsed flags.
struct Shape {
    output: PathBuf,
    layers: u32,
    embedding: u32,
    heads: u32,
    feed_forward: u32,
    context: u32,
    seed: u64,
}

impl Shape {
    fn new(words: &[String]) -> Result<Self, ToolError> {
        let mut given = Arguments::new(words)?;
        let mut small = |flag, range, default| {
            // The ranges fit.
            given.number(flag, range, Some(default)).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
        };
        let (layers, embedding) = (small("layers", 1..=1000, 2)?, small("embedding", 32..=65_536, 64)?);
        let (heads, feed_forward) = (small("heads", 1..=1024, 4)?, small("feed-forward", 32..=262_144, 128)?);
        let context = small("context", 8..=1_048_576, 512)?;
        let output = PathBuf::from(given.text("output", None)?);
        let seed = given.number("seed", 0..=u64::MAX, Some(1))?;
        given.finish()?;
        let bad =
            |flag, value: u32, rule: &str| ToolError::BadValue { flag, value: value.to_string(), rule: rule.into() };
        if embedding % 32 != 0 {
            return Err(bad("embedding", embedding, "a multiple of 32"));
        }
        if feed_forward % 32 != 0 {
            return Err(bad("feed-forward", feed_forward, "a multiple of 32"));
        }
        // Rotary position encoding turns pairs of numbers.
        if embedding % (2 * heads) != 0 {
            return Err(bad("heads", heads, "such that --embedding is a multiple of twice as many"));
        }
        Ok(Self { output, layers, embedding, heads, feed_forward, context, seed })
    }

    /// The metadata of llama's architecture (docs/gguf.md, "LLM", and llama.cpp's src/llama-arch.cpp).
    fn metadata(&self, tokens: &[Token]) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.text("general.architecture", "llama");
        metadata.text("general.name", &format!("topolab random, seed {}", self.seed));
        // All tensors are F32.
        metadata.u32("general.file_type", 0);
        metadata.u32("llama.context_length", self.context);
        metadata.u32("llama.embedding_length", self.embedding);
        metadata.u32("llama.block_count", self.layers);
        metadata.u32("llama.feed_forward_length", self.feed_forward);
        metadata.u32("llama.attention.head_count", self.heads);
        metadata.u32("llama.attention.head_count_kv", self.heads);
        metadata.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
        metadata.u32("llama.rope.dimension_count", self.embedding / self.heads);
        metadata.u32("llama.vocab_size", u32::try_from(tokens.len()).unwrap_or(u32::MAX));
        metadata.text("tokenizer.ggml.model", "llama");
        metadata.texts("tokenizer.ggml.tokens", &tokens.iter().map(|token| token.text.as_str()).collect::<Vec<_>>());
        metadata.f32s("tokenizer.ggml.scores", &tokens.iter().map(|token| token.score).collect::<Vec<_>>());
        metadata.i32s("tokenizer.ggml.token_type", &tokens.iter().map(|token| token.kind as i32).collect::<Vec<_>>());
        metadata.u32("tokenizer.ggml.bos_token_id", BEGIN);
        metadata.u32("tokenizer.ggml.eos_token_id", END);
        metadata.u32("tokenizer.ggml.unknown_token_id", UNKNOWN);
        metadata.bool("tokenizer.ggml.add_bos_token", true);
        metadata.bool("tokenizer.ggml.add_eos_token", false);
        metadata
    }

    /// Every tensor, in the order of the file.
    fn tensors(&self, vocabulary: usize) -> Vec<Tensor> {
        let [embedding, feed_forward] = [self.embedding, self.feed_forward].map(u64::from);
        let vocabulary = vocabulary as u64;
        let tensor = |name: String, dimensions: &[u64]| Tensor { name, dimensions: dimensions.to_vec() };
        let mut tensors = vec![
            tensor("token_embd.weight".into(), &[embedding, vocabulary]),
            tensor("output_norm.weight".into(), &[embedding]),
            tensor("output.weight".into(), &[embedding, vocabulary]),
        ];
        for layer in 0..self.layers {
            let parts: [(&str, &[u64]); 9] = [
                ("attn_norm", &[embedding]),
                ("attn_q", &[embedding, embedding]),
                ("attn_k", &[embedding, embedding]),
                ("attn_v", &[embedding, embedding]),
                ("attn_output", &[embedding, embedding]),
                ("ffn_norm", &[embedding]),
                ("ffn_gate", &[embedding, feed_forward]),
                ("ffn_up", &[embedding, feed_forward]),
                ("ffn_down", &[feed_forward, embedding]),
            ];
            let names =
                parts.into_iter().map(|(part, dimensions)| tensor(format!("blk.{layer}.{part}.weight"), dimensions));
            tensors.extend(names);
        }
        tensors
    }
}

/// Writes the model.
pub(crate) fn run(words: &[String]) -> Result<Value, ToolError> {
    let shape = Shape::new(words)?;
    let tokens = vocabulary::tokens();
    let tensors = shape.tensors(tokens.len());
    let head = shape.metadata(&tokens).head(&tensors);
    let temporary = temporary_name(&shape.output)?;
    let written = write(&temporary, &head, &tensors, shape.seed);
    let bytes = written.and_then(|()| {
        let bytes = std::fs::metadata(&temporary)?.len();
        std::fs::rename(&temporary, &shape.output).map(|()| bytes)
    });
    if bytes.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(json!({
        "tool": "random-gguf",
        "file": shape.output.display().to_string(),
        "bytes": trying(format!("write {}", shape.output.display()), bytes)?,
        "parameters": tensors.iter().map(Tensor::elements).sum::<u64>(),
    }))
}

/// A name beside the file's, for nobody to read half a model.
fn temporary_name(output: &Path) -> Result<PathBuf, ToolError> {
    let name = output.file_name().ok_or_else(|| ToolError::BadValue {
        flag: "output",
        value: output.display().to_string(),
        rule: "the path of a file".into(),
    })?;
    Ok(output.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id())))
}

fn write(path: &Path, head: &[u8], tensors: &[Tensor], seed: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(head)?;
    let mut rng = SplitMix64::new(seed);
    for tensor in tensors {
        let written = match tensor.dimensions.as_slice() {
            // Norms scale what is normal already.
            [elements] => (0..*elements).try_for_each(|_| file.write_all(&1_f32.to_le_bytes())).map(|()| elements * 4),
            dimensions => write_random(&mut file, &mut rng, dimensions),
        }?;
        let padding = written.next_multiple_of(ALIGNMENT) - written;
        (0..padding).try_for_each(|_| file.write_all(&[0]))?;
    }
    file.into_inner().map(drop).map_err(io::IntoInnerError::into_error)
}

/// Writes weights uniform around 0 and returns their bytes. Their variance is one over the inputs that are summed up, so that
/// activations neither vanish nor overflow through any number of layers.
fn write_random(file: &mut impl Write, rng: &mut SplitMix64, dimensions: &[u64]) -> io::Result<u64> {
    let inputs = dimensions.first().copied().unwrap_or(1);
    // A uniform number from -r to r has the variance r²/3.
    let scale = (3.0 / inputs as f32).sqrt();
    let elements: u64 = dimensions.iter().product();
    let mut left = elements;
    let mut chunk = Vec::with_capacity(CHUNK * 4);
    while left > 0 {
        let now = left.min(CHUNK as u64);
        chunk.clear();
        for _ in 0..now {
            // 24 bits are exact in an f32, so every machine writes the same bytes.
            let unit = (rng.bits() >> 40) as f32 / 8_388_608.0 - 1.0;
            chunk.extend((unit * scale).to_le_bytes());
        }
        file.write_all(&chunk)?;
        left -= now;
    }
    Ok(elements * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, flags: &str) -> Result<(Value, Vec<u8>), ToolError> {
        let path = std::env::temp_dir().join(format!("topolab-{}-{name}.gguf", std::process::id()));
        let line = format!("--output {} {flags}", path.display());
        let record = run(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())?;
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Ok((record, bytes))
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (record, first) = model("a", "--seed 5").unwrap();
        let (_, again) = model("b", "--seed 5").unwrap();
        let (_, other) = model("c", "--seed 6").unwrap();
        assert!(first == again && first != other);
        assert_eq!(record["bytes"], first.len());
        let vocabulary = vocabulary::tokens().len();
        // Embedding and output, their norm, and two layers: four squares, three rectangles and two norms each.
        let parameters = 2 * 64 * vocabulary + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64);
        assert_eq!(record["parameters"], parameters);
        assert!(first.starts_with(b"GGUF\x03\0\0\0\x15\0\0\0\0\0\0\0"), "version 3, 21 tensors");
        let data = &first[first.len() - parameters * 4..];
        let numbers: Vec<f32> = data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let embedding = &numbers[..64 * vocabulary];
        let variance = embedding.iter().map(|n| n * n).sum::<f32>() / embedding.len() as f32;
        assert!((variance * 64.0 - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn an_impossible_shape_is_refused() {
        for (flags, at) in
            [("--embedding 40", "embedding"), ("--heads 3", "heads"), ("--feed-forward 33", "feed-forward")]
        {
            assert!(matches!(model("x", flags), Err(ToolError::BadValue { flag, .. }) if flag == at), "{flags}");
        }
        assert!(matches!(run(&[]), Err(ToolError::MissingFlag("output"))));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let why = run(&["--output".into(), "/no/such/folder/model.gguf".into()]).unwrap_err().to_string();
        assert!(why.starts_with("write /no/such/folder/model.gguf: No such file"), "{why}");
    }
}
