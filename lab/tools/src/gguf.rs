//! The head of a GGUF file, version 3 (docs/gguf.md in ggml's source): magic, metadata and where each tensor lies. All numbers
//! are little-endian on every machine.

/// Where tensors begin, and the data as a whole: at multiples of this many bytes, GGUF's default `general.alignment`.
pub(crate) const ALIGNMENT: u64 = 32;
/// Numbers of metadata value types.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
/// The number of the tensor type F32.
const TENSOR_F32: u32 = 0;

/// A tensor of F32 numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// Elements along each dimension, the one that is contiguous in memory first.
    pub(crate) dimensions: Vec<u64>,
}

impl Tensor {
    pub(crate) fn elements(&self) -> u64 {
        self.dimensions.iter().product()
    }

    /// Bytes in the file, with the padding that follows.
    fn padded(&self) -> u64 {
        (self.elements() * 4).next_multiple_of(ALIGNMENT)
    }
}

/// Metadata in the making.
#[derive(Default)]
pub(crate) struct Metadata {
    count: u64,
    bytes: Vec<u8>,
}

impl Metadata {
    fn key(&mut self, key: &str, kind: u32) {
        self.count += 1;
        put_text(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
    }

    fn array<T>(&mut self, key: &str, kind: u32, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
        self.key(key, ARRAY);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((items.len() as u64).to_le_bytes());
        items.iter().for_each(|item| put(&mut self.bytes, item));
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.key(key, STRING);
        put_text(&mut self.bytes, value);
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) {
        self.key(key, U32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn f32(&mut self, key: &str, value: f32) {
        self.key(key, F32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) {
        self.key(key, BOOL);
        self.bytes.push(u8::from(value));
    }

    pub(crate) fn texts(&mut self, key: &str, values: &[&str]) {
        self.array(key, STRING, values, |bytes, value| put_text(bytes, value));
    }

    pub(crate) fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, I32, values, |bytes, value| bytes.extend(value.to_le_bytes()));
    }

    pub(crate) fn f32s(&mut self, key: &str, values: &[f32]) {
        self.array(key, F32, values, |bytes, value| bytes.extend(value.to_le_bytes()));
    }

    /// Everything that comes before the tensors' data. The data follows in the order of the tensors, each padded with zeros to
    /// a multiple of [`ALIGNMENT`].
    pub(crate) fn head(self, tensors: &[Tensor]) -> Vec<u8> {
        let mut head = b"GGUF".to_vec();
        head.extend(3_u32.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend(self.count.to_le_bytes());
        head.extend(self.bytes);
        let mut offset = 0_u64;
        for tensor in tensors {
            put_text(&mut head, &tensor.name);
            head.extend((tensor.dimensions.len() as u32).to_le_bytes());
            tensor.dimensions.iter().for_each(|elements| head.extend(elements.to_le_bytes()));
            head.extend(TENSOR_F32.to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset += tensor.padded();
        }
        head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
        head
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_the_documented_bytes() {
        let mut metadata = Metadata::default();
        metadata.text("a", "xy");
        metadata.u32("b", 7);
        metadata.texts("c", &["z"]);
        let tensor = |name: &str, dimensions: &[u64]| Tensor { name: name.into(), dimensions: dimensions.to_vec() };
        let head = metadata.head(&[tensor("t", &[3]), tensor("u", &[2, 5])]);
        let expected: &[&[u8]] = &[
            b"GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
            b"\x01\0\0\0\0\0\0\0a\x08\0\0\0\x02\0\0\0\0\0\0\0xy",
            b"\x01\0\0\0\0\0\0\0b\x04\0\0\0\x07\0\0\0",
            b"\x01\0\0\0\0\0\0\0c\x09\0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0z",
            b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            // Twelve bytes of data are padded to 32.
            b"\x01\0\0\0\0\0\0\0u\x02\0\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0",
        ];
        let expected = expected.concat();
        assert_eq!(&head[..expected.len()], expected);
        assert!(head.len() % 32 == 0 && head.len() - expected.len() < 32);
        assert!(head[expected.len()..].iter().all(|byte| *byte == 0));
    }
}
