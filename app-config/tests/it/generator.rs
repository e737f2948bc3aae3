//! Generates templates from a grammar over the state of `tests/go/state.json`. Most are valid. Some
//! have wrong types, and some have a character too many or too few.
//!
//! The generator avoids cases that Go leaves undefined, and deliberate differences of Stead, which
//! `docs/templates.md` lists.

mod calls;
mod operands;

/// xorshift*: the same seed gives the same numbers everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Spreads the seeds, so that adjacent seeds give unrelated numbers.
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end.max(1)
    }
}

pub struct Generator {
    random: Random,
    out: String,
    vars: Vec<String>,
    named: usize,
    ranges: usize,
    depth: usize,
    dot: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Any,
    Text,
    Number,
    Int,
    Bool,
    List,
    Map,
    Root,
}

const KINDS: [Kind; 7] =
    [Kind::Any, Kind::Text, Kind::Number, Kind::Int, Kind::Bool, Kind::List, Kind::Map];

impl Generator {
    pub fn template(seed: u64) -> String {
        let mut generator = Generator {
            random: Random::new(seed),
            out: String::new(),
            vars: Vec::new(),
            named: 0,
            ranges: 0,
            depth: 0,
            dot: Kind::Root,
        };
        if generator.chance(8) {
            generator.definition();
        }
        generator.body();
        if generator.chance(6) {
            generator.damage();
        }
        generator.out
    }

    /// True once in `of` calls on average.
    fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    fn one<'c>(&mut self, of: &[&'c str]) -> &'c str {
        of[self.random.below(of.len())]
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn pick(&mut self, of: &[&str]) {
        let text = self.one(of);
        self.put(text);
    }

    fn open(&mut self) {
        self.pick(&["{{", "{{ ", "{{ ", "{{ ", "{{- ", "{{-\n", "{{\n "]);
    }

    fn close(&mut self) {
        self.pick(&["}}", " }}", " }}", " }}", " -}}", "\n-}}", "\n}}", "  -}}"]);
    }

    fn text(&mut self) {
        self.pick(&[
            "", "a", " b ", "\n", "x \n\t y", "é", "{ ", "}", "} }", "<p>", "--", "}}", "\r\n",
            "=\"q\"",
        ]);
    }

    fn body(&mut self) {
        let outer = self.vars.len();
        for _ in 0..=self.random.below(3) {
            self.text();
            self.node();
        }
        self.text();
        // The parser knows variables of a branch that was not taken, but they have no value.
        if !self.chance(20) {
            self.vars.truncate(outer);
        }
    }

    fn node(&mut self) {
        self.depth += 1;
        let deep = self.depth > 4;
        match self.random.below(if deep { 6 } else { 20 }) {
            0..=3 => {
                self.open();
                self.pipeline(Kind::Any);
                self.close();
            }
            4 => self.set(),
            5 if self.chance(40) => self.put("{{ /* bad */}}"),
            5 if self.chance(3) => {
                self.pick(&[
                    "{{/* note */}}",
                    "{{- /* a\n b */ -}}",
                    "{{/* x */ -}}",
                    "{{- /**/}}",
                ]);
            }
            5 => {
                self.open();
                self.operand(Kind::Any);
                self.close();
            }
            6..=9 => self.conditional("if"),
            10..=12 => self.conditional("with"),
            13..=16 => self.range(),
            17 => self.block(),
            18 => {
                if self.ranges > 0 || self.chance(10) {
                    let flow =
                        self.one(&["{{break}}", "{{continue}}", "{{ break }}", "{{- continue -}}"]);
                    self.put("{{ if ");
                    self.operand(Kind::Any);
                    self.put(" }}");
                    self.put(flow);
                    self.put("{{ end }}");
                }
            }
            _ => self.call_template(),
        }
        self.depth -= 1;
    }

    fn set(&mut self) {
        self.open();
        let kind = self.kind();
        if !self.vars.is_empty() && self.chance(3) {
            let name = self.variable();
            self.put(&name);
            self.pick(&[" = ", " = ", "= ", " ="]);
            self.pipeline(kind);
        } else {
            let name = format!("${}", self.one(&["x", "y", "z", "v1", "é"]));
            self.put(&name);
            self.pick(&[" := ", " := ", ":= ", " :=", ":="]);
            self.pipeline(kind);
            self.vars.push(name);
        }
        self.close();
    }

    fn variable(&mut self) -> String {
        let at = self.random.below(self.vars.len());
        self.vars.get(at).cloned().unwrap_or_else(|| "$".to_string())
    }

    fn conditional(&mut self, word: &str) {
        let (outer, dot) = (self.vars.len(), self.dot);
        self.open();
        self.put(word);
        self.put(" ");
        let kind = self.kind();
        if self.chance(6) {
            self.put("$c := ");
            self.pipeline(kind);
            self.vars.push("$c".to_string());
        } else {
            self.pipeline(kind);
        }
        self.close();
        if word == "with" {
            self.dot = kind;
        }
        self.body();
        self.dot = dot;
        while word == "if" && self.chance(4) {
            self.put("{{ else if ");
            self.pipeline(Kind::Any);
            self.put(" }}");
            self.body();
        }
        self.ending();
        self.vars.truncate(outer);
    }

    fn ending(&mut self) {
        if self.chance(3) {
            self.pick(&["{{ else }}", "{{- else -}}", "{{else}}"]);
            self.body();
        }
        self.pick(&["{{ end }}", "{{end}}", "{{- end }}", "{{ end -}}"]);
    }

    fn range(&mut self) {
        let (outer, dot) = (self.vars.len(), self.dot);
        self.open();
        self.put("range ");
        let declared = self.random.below(3);
        let names = [["$k", "$v"], ["$i", "$x"]][self.random.below(2)];
        match declared {
            1 => self.put(&format!("{} := ", names[1])),
            2 => self.put(&format!("{}, {} := ", names[0], names[1])),
            _ => {}
        }
        let kind = if self.chance(12) {
            Kind::Text
        } else if self.chance(2) {
            Kind::Map
        } else {
            Kind::List
        };
        self.pipeline(kind);
        self.close();
        match declared {
            1 => self.vars.push(names[1].to_string()),
            2 => self.vars.extend(names.map(String::from)),
            _ => {}
        }
        self.dot = Kind::Any;
        self.ranges += 1;
        self.body();
        self.ranges -= 1;
        self.dot = dot;
        self.ending();
        self.vars.truncate(outer);
    }

    fn separate(&mut self) {
        let vars = std::mem::take(&mut self.vars);
        let (ranges, dot) = (self.ranges, self.dot);
        self.ranges = 0;
        self.dot = Kind::Any;
        self.body();
        self.vars = vars;
        self.ranges = ranges;
        self.dot = dot;
    }

    fn definition(&mut self) {
        self.named += 1;
        let name = self.named;
        self.put(&format!("{{{{ define \"t{name}\" }}}}"));
        // The body calls only templates with a smaller number, so no template calls itself.
        self.named = name - 1;
        self.separate();
        self.named = name;
        self.put("{{ end }}");
    }

    fn block(&mut self) {
        self.named += 100;
        let name = self.named;
        self.put(&format!("{{{{ block \"t{name}\" "));
        self.pipeline(Kind::Any);
        self.put(" }}");
        let named = std::mem::take(&mut self.named);
        self.separate();
        self.named = named;
        self.put("{{ end }}");
    }

    fn call_template(&mut self) {
        if self.named == 0 && !self.chance(5) {
            return;
        }
        let name = self.named;
        self.open();
        self.put(&format!("template \"t{name}\""));
        if !self.chance(4) {
            self.put(" ");
            self.pipeline(Kind::Any);
        }
        self.close();
    }

    /// Removes or inserts characters at a random position.
    fn damage(&mut self) {
        let places: Vec<usize> = self.out.char_indices().map(|(at, _)| at).collect();
        let at = places.get(self.random.below(places.len())).copied().unwrap_or_default();
        if self.chance(2) {
            if at < self.out.len() {
                self.out.remove(at);
            }
        } else {
            let extra = self.one(&[
                "{{",
                "}}",
                "\"",
                "(",
                ")",
                "|",
                ".",
                "$",
                " ",
                "-",
                "`",
                "'",
                "nope ",
                " end ",
                ",",
                "=",
                ":",
                "{{end}}",
                "{{else}}",
                "\\",
                "#",
                "1",
                "é",
                "\u{a0}",
                "/*",
                "*/",
                "*",
                "{{ template \"t9\" }}",
                "{{ define \"t1\" }}d{{ end }}",
                "nil",
                " true.x",
                "5.x",
            ]);
            self.out.insert_str(at, extra);
        }
    }
}
