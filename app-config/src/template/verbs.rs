//! Formats a value with one verb of `printf`.
use domain::go_text;

use super::{real, value::Value};

#[derive(Debug, Default, Clone)]
pub struct Form {
    pub minus: bool,
    pub plus: bool,
    pub space: bool,
    pub zero: bool,
    pub sharp: bool,
    /// `%#v`: formats as source code.
    pub sharp_v: bool,
    pub width: Option<usize>,
    pub precision: Option<usize>,
}

pub struct Printer {
    pub out: String,
    pub form: Form,
    most: usize,
}

impl Printer {
    pub fn new(most: usize) -> Self {
        Printer { out: String::new(), form: Form::default(), most }
    }

    pub fn is_full(&self) -> bool {
        self.out.len() > self.most
    }

    pub fn argument(&mut self, value: &Value, verb: char) {
        match (value, verb) {
            (Value::Nil | Value::Null, 'v' | 'T') => self.pad("<nil>"),
            (_, 'T') => self.cut(value.type_name()),
            (_, _) => self.value(value, verb, false),
        }
    }

    fn value(&mut self, value: &Value, verb: char, inside: bool) {
        if self.is_full() {
            return;
        }
        match value {
            Value::Nil | Value::Null if inside && self.form.sharp_v => {
                self.out.push_str("interface {}(nil)");
            }
            Value::Nil | Value::Null if inside => self.out.push_str("<nil>"),
            Value::Nil | Value::Null => self.bad(value, verb),
            Value::Bool(flag) if matches!(verb, 't' | 'v') => {
                self.pad(if *flag { "true" } else { "false" });
            }
            Value::Int(number) | Value::Int64(number) => self.integer(value, *number, verb, true),
            Value::Byte(byte) => self.integer(value, i64::from(*byte), verb, false),
            Value::Float(number) => self.float(value, *number, verb),
            Value::Text(text) => self.text(value, text, verb),
            // `w` is the only verb that is rejected for the whole value instead of for its
            // elements.
            Value::List(_) | Value::Map(_) if verb == 'w' => self.bad(value, verb),
            Value::List(items) => {
                let (open, between, close) = self.marks("[", "]", value);
                self.out.push_str(&open);
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(between);
                    }
                    self.value(item, verb, true);
                }
                self.out.push_str(close);
            }
            Value::Map(entries) => {
                let (open, between, close) = self.marks("map[", "]", value);
                self.out.push_str(&open);
                for (at, (key, item)) in entries.borrow().iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(between);
                    }
                    self.value(&Value::Text(key.clone()), verb, true);
                    self.out.push(':');
                    self.value(item, verb, true);
                }
                self.out.push_str(close);
            }
            // Callers reject a sensitive value before.
            Value::Bool(_) | Value::Secret(_) => self.bad(value, verb),
        }
    }

    fn marks(
        &self,
        open: &str,
        close: &'static str,
        value: &Value,
    ) -> (String, &'static str, &'static str) {
        if self.form.sharp_v {
            (format!("{}{{", value.type_name()), ", ", "}")
        } else {
            (open.to_string(), " ", close)
        }
    }

    /// Formats a verb that does not match the value.
    fn bad(&mut self, value: &Value, verb: char) {
        self.out.push_str(&format!("%!{verb}("));
        self.typed(value);
        self.out.push(')');
    }

    /// Writes the type and the value, such as `int=1`.
    pub fn typed(&mut self, value: &Value) {
        if value.is_nil() {
            self.out.push_str("<nil>");
            return;
        }
        self.out.push_str(value.type_name());
        self.out.push('=');
        self.value(value, 'v', false);
    }

    fn text(&mut self, value: &Value, text: &str, verb: char) {
        match verb {
            'v' if self.form.sharp_v => self.quoted(text),
            's' | 'v' => self.cut(text),
            'q' => self.quoted(text),
            'x' | 'X' => self.hexadecimal(text.as_bytes(), verb == 'X'),
            _ => self.bad(value, verb),
        }
    }

    /// Writes a string, padded, up to the precision in characters.
    fn cut(&mut self, text: &str) {
        let cut = self.shortened(text);
        self.pad(cut);
    }

    fn shortened<'t>(&self, text: &'t str) -> &'t str {
        let end = self.form.precision.and_then(|most| text.char_indices().nth(most));
        end.map_or(text, |(end, _)| &text[..end])
    }

    fn quoted(&mut self, text: &str) {
        let text = self.shortened(text);
        if self.form.sharp && go_text::fits_back_quotes(text) {
            self.pad(&format!("`{text}`"));
        } else {
            self.pad(&go_text::text(text, self.form.plus));
        }
    }

    fn hexadecimal(&mut self, bytes: &[u8], upper: bool) {
        let most = self.form.precision.unwrap_or(bytes.len()).min(bytes.len());
        let prefix = match (self.form.sharp, upper) {
            (false, _) => "",
            (true, false) => "0x",
            (true, true) => "0X",
        };
        let mut text = String::new();
        for (at, byte) in bytes[..most].iter().enumerate() {
            if at > 0 && self.form.space {
                text.push(' ');
            }
            if at == 0 || self.form.space {
                text.push_str(prefix);
            }
            text.push_str(&if upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
        }
        self.pad(&text);
    }

    fn integer(&mut self, value: &Value, number: i64, verb: char, signed: bool) {
        let code = || u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        match verb {
            'v' if self.form.sharp_v && !signed => {
                let sharp = std::mem::replace(&mut self.form.sharp, true);
                self.digits(number, 16, verb);
                self.form.sharp = sharp;
            }
            'v' | 'd' => self.digits(number, 10, verb),
            'b' => self.digits(number, 2, verb),
            'o' | 'O' => self.digits(number, 8, verb),
            'x' | 'X' => self.digits(number, 16, verb),
            'c' => self.pad(code().encode_utf8(&mut [0; 4])),
            'q' => self.pad(&go_text::character(code(), self.form.plus)),
            'U' => self.code_point(number),
            _ => self.bad(value, verb),
        }
    }

    fn digits(&mut self, number: i64, base: u32, verb: char) {
        let (negative, size) = (number < 0, number.unsigned_abs());
        let digits = match (base, verb) {
            (2, _) => format!("{size:b}"),
            (8, _) => format!("{size:o}"),
            (16, 'X') => format!("{size:X}"),
            (16, _) => format!("{size:x}"),
            (_, _) => size.to_string(),
        };
        let signs = usize::from(negative || self.form.plus || self.form.space);
        let least = match (self.form.precision, self.form.width) {
            (Some(0), width) if size == 0 => {
                self.out.push_str(&" ".repeat(width.unwrap_or(0)));
                return;
            }
            (Some(precision), _) => precision,
            (None, Some(width)) if self.form.zero => width.saturating_sub(signs),
            (None, _) => 0,
        };
        let mut text = format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len())));
        if self.form.sharp {
            match base {
                2 => text.insert_str(0, "0b"),
                8 if !text.starts_with('0') => text.insert(0, '0'),
                16 => text.insert_str(0, if verb == 'X' { "0X" } else { "0x" }),
                _ => {}
            }
        }
        if verb == 'O' {
            text.insert_str(0, "0o");
        }
        if let Some(sign) = self.sign(negative) {
            text.insert(0, sign);
        }
        self.pad_with_spaces(&text);
    }

    fn sign(&self, negative: bool) -> Option<char> {
        match (negative, self.form.plus, self.form.space) {
            (true, _, _) => Some('-'),
            (false, true, _) => Some('+'),
            (false, false, true) => Some(' '),
            (false, false, false) => None,
        }
    }

    fn code_point(&mut self, number: i64) {
        let least = self.form.precision.unwrap_or(4).max(4);
        let digits = format!("{:X}", number as u64);
        // `format!` panics on a width above 65,535.
        let mut text = format!("U+{}{digits}", "0".repeat(least.saturating_sub(digits.len())));
        let c = u32::try_from(number).ok().and_then(char::from_u32);
        if let Some(c) = c.filter(|c| self.form.sharp && go_text::is_printed(*c)) {
            text.push_str(&format!(" '{c}'"));
        }
        self.pad_with_spaces(&text);
    }

    fn float(&mut self, value: &Value, number: f64, verb: char) {
        let (verb, precision) = match verb {
            'v' => ('g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => (verb, None),
            'e' | 'E' | 'f' => (verb, Some(6)),
            'F' => ('f', Some(6)),
            _ => return self.bad(value, verb),
        };
        let precision = self.form.precision.or(precision);
        let mut text = real::written(number.abs(), verb, precision);
        if self.form.sharp && verb != 'b' {
            text = real::with_point(&text, verb, precision);
        }
        let Some(sign) = self.sign(number.is_sign_negative()) else { return self.pad(&text) };
        let missing = self.form.width.unwrap_or(0).saturating_sub(text.len() + 1);
        if self.form.zero && missing > 0 {
            self.out.push(sign);
            self.out.push_str(&"0".repeat(missing));
            self.out.push_str(&text);
            return;
        }
        text.insert(0, sign);
        self.pad(&text);
    }

    fn pad_with_spaces(&mut self, text: &str) {
        let zero = std::mem::take(&mut self.form.zero);
        self.pad(text);
        self.form.zero = zero;
    }

    fn pad(&mut self, text: &str) {
        let width = self.form.width.unwrap_or(0);
        let missing = if width == 0 { 0 } else { width.saturating_sub(text.chars().count()) };
        let padding = if self.form.zero { "0" } else { " " }.repeat(missing);
        if self.form.minus {
            self.out.push_str(text);
            self.out.push_str(&padding);
        } else {
            self.out.push_str(&padding);
            self.out.push_str(text);
        }
    }
}
