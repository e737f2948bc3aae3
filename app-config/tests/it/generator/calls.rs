//! Pipelines and function calls that give a value of a kind.
use super::{Generator, KINDS, Kind};

impl Generator {
    pub(super) fn kind(&mut self) -> Kind {
        KINDS[self.random.below(KINDS.len())]
    }

    pub(super) fn pipeline(&mut self, kind: Kind) {
        if self.chance(4) {
            // A value, piped into a function that takes it last.
            match self.random.below(9) {
                0 => {
                    self.operand(Kind::Any);
                    self.put(" | default ");
                    self.operand(kind);
                }
                1 => {
                    self.operand(Kind::List);
                    self.put(" | join ");
                    self.operand(Kind::Text);
                }
                2 => {
                    self.operand(Kind::Text);
                    self.put(" | lower | printf \"%s\"");
                }
                3 => {
                    self.operand(Kind::Bool);
                    self.put(" | ternary ");
                    self.operand(kind);
                    self.put(" ");
                    self.operand(kind);
                }
                4 => {
                    self.operand(Kind::Any);
                    self.put(" | or ");
                    self.operand(kind);
                }
                5 => {
                    self.operand(Kind::Number);
                    self.put(" | int64 | duration");
                }
                6 => {
                    self.operand(Kind::Any);
                    self.pick(&[
                        " | toJson",
                        " | toPrettyJson",
                        " | html",
                        " | js",
                        " | urlquery",
                        " | len",
                        " | not",
                    ]);
                }
                7 => {
                    self.operand(Kind::Any);
                    self.put(" | printf ");
                    self.format();
                }
                _ => {
                    self.expression(Kind::Any);
                    self.put(" | ");
                    self.operand(kind);
                }
            }
            return;
        }
        self.expression(kind);
    }

    /// Writes a function call or an operand.
    pub(super) fn expression(&mut self, preferred: Kind) {
        self.depth += 1;
        let kind = if self.chance(25) { self.kind() } else { preferred };
        if self.depth > 6 || self.chance(3) {
            self.operand(kind);
        } else {
            match kind {
                Kind::Text => self.text_call(),
                Kind::Int | Kind::Number => self.number_call(),
                Kind::Bool => self.bool_call(),
                Kind::List => self.list_call(),
                Kind::Map => self.map_call(),
                Kind::Any | Kind::Root => {
                    let kind = self.kind();
                    if kind == Kind::Any { self.any_call() } else { self.expression(kind) }
                }
            }
        }
        self.depth -= 1;
    }

    pub(super) fn function(&mut self, name: &str, takes: &[Kind]) {
        self.put(name);
        let mut takes = takes.to_vec();
        if self.chance(40) {
            takes.pop();
        } else if self.chance(40) {
            takes.push(Kind::Any);
        }
        for kind in takes {
            self.put(" ");
            self.operand(kind);
        }
    }

    pub(super) fn text_call(&mut self) {
        use Kind::{Any, Int, List, Number, Text};
        match self.random.below(14) {
            0 => self.function("lower", &[Text]),
            1 => {
                // ASCII only: `substr` cuts bytes, and Stead replaces the bytes of a partial
                // character with U+FFFD.
                self.put("substr ");
                self.operand(Int);
                self.put(" ");
                self.operand(Int);
                self.pick(&[" .nuon.a", " \"abc\"", " $.nuon.digits", " \"\""]);
            }
            2 => self.function("join", &[Text, List]),
            3 => self.function("join", &[Text, Any]),
            4 => self.function("print", &[Any, Any, Any]),
            5 => self.function("println", &[Any, Any]),
            6 => self.function("toJson", &[Any]),
            7 => self.function("toPrettyJson", &[Any]),
            8 => self.function("html", &[Any]),
            9 => self.function("js", &[Any]),
            10 => self.function("urlquery", &[Any]),
            11 => self.function("duration", &[Number]),
            _ => {
                self.put("printf ");
                self.format();
                for _ in 0..self.random.below(4) {
                    self.put(" ");
                    self.operand(Any);
                }
            }
        }
    }

    pub(super) fn format(&mut self) {
        self.put("\"");
        for _ in 0..=self.random.below(3) {
            self.pick(&["", " ", "a", "%%", ":", "é"]);
            self.put("%");
            if self.chance(3) {
                self.pick(&["-", "+", " ", "0", "#", "-0", "+0", "0-", "# ", "+#"]);
            }
            if self.chance(8) {
                self.pick(&["[1]", "[2]", "[3]", "[9]", "[]", "[x]", "[1", "[-1]"]);
            }
            if self.chance(3) {
                self.pick(&["1", "3", "8", "12", "*"]);
            }
            if self.chance(4) {
                self.pick(&[".", ".0", ".1", ".2", ".5", ".*", ".[1]*"]);
            }
            self.pick(&[
                "v", "v", "v", "s", "s", "d", "d", "q", "t", "f", "g", "e", "x", "X", "o", "b",
                "c", "U", "T", "G", "E", "F", "O", "z", "w", "!", "é",
            ]);
        }
        self.put("\"");
    }

    pub(super) fn number_call(&mut self) {
        use Kind::{Any, List, Map, Number, Text};
        match self.random.below(7) {
            0 => self.function("len", &[List]),
            1 => self.function("len", &[Text]),
            2 => self.function("len", &[Map]),
            3 => self.function("len", &[Any]),
            4 => self.function("int64", &[Any]),
            5 => self.function("div", &[Number, Number]),
            _ => self.function("index", &[Text, Kind::Int]),
        }
    }

    pub(super) fn bool_call(&mut self) {
        let kind = self.kind();
        match self.random.below(9) {
            0 => self.function("not", &[Kind::Any]),
            1..=3 => {
                let name = self.one(&["eq", "ne", "lt", "le", "gt", "ge"]);
                self.function(name, &[kind, kind]);
            }
            4 => {
                let name = self.one(&["eq", "ne", "lt", "le", "gt", "ge"]);
                self.function(name, &[Kind::Any, Kind::Any]);
            }
            5 => self.function("eq", &[kind, kind, kind]),
            6 => {
                self.put("kindIs ");
                self.pick(&[
                    "\"map\"",
                    "\"slice\"",
                    "\"string\"",
                    "\"float64\"",
                    "\"invalid\"",
                    "\"int64\"",
                    "\"int\"",
                ]);
                self.put(" ");
                self.operand(Kind::Any);
            }
            7 => self.function("and", &[Kind::Bool, Kind::Bool]),
            _ => self.function("or", &[Kind::Bool, Kind::Bool]),
        }
    }

    pub(super) fn list_call(&mut self) {
        match self.random.below(5) {
            0 => self.function("list", &[Kind::Any, Kind::Any, Kind::Any]),
            1 => self.function("append", &[Kind::List, Kind::Any]),
            // At most one value, because Go's order is random.
            2 => self.pick(&[
                "values .nuon.one",
                "values $.nuon.empty",
                "values .nuon.n",
                "values nil",
                "values (dict \"a\" 1)",
            ]),
            3 => {
                // No index of a list exceeds its length: up to the capacity, Go also returns elements
                // of the backing array.
                self.pick(&[
                    "slice .nuon.l 0 2",
                    "slice $.nuon.l 1",
                    "slice $.nuon.nums 1.0 3",
                    "slice .nuon.l 2 1",
                    "slice .nuon.none 4 5",
                    "slice $.nuon.l \"1\"",
                    "slice .nuon.a",
                    "slice nil",
                    "slice .nuon.l -1",
                ]);
            }
            _ => self.operand(Kind::List),
        }
    }

    pub(super) fn map_call(&mut self) {
        match self.random.below(4) {
            0 => self.function("dict", &[Kind::Text, Kind::Any, Kind::Text, Kind::Any]),
            1 => self.function("dict", &[Kind::Any, Kind::Any, Kind::Any]),
            2 => {
                self.put("set (dict \"a\" 1) ");
                self.operand(Kind::Text);
                self.put(" ");
                self.operand(Kind::Any);
            }
            _ => self.pick(&[
                "fromJson .nuon.json",
                "fromJson $.nuon.bad_json",
                "fromJson \"[1,2]\"",
                "fromJson \"null\"",
            ]),
        }
    }

    pub(super) fn any_call(&mut self) {
        use Kind::{Any, Int, List, Map, Text};
        match self.random.below(9) {
            0 => self.function("default", &[Any, Any]),
            1 => self.function("coalesce", &[Any, Any, Any]),
            2 => self.function("ternary", &[Any, Any, Kind::Bool]),
            3 => self.function("index", &[List, Int]),
            4 => {
                self.put("index ");
                self.operand(Map);
                self.pick(&[
                    " \"k\"",
                    " \"zz\"",
                    " \"n\"",
                    " \"deep\" \"er\"",
                    " \"n\" \"x\"",
                    " nil",
                    " 1",
                ]);
            }
            5 => {
                self.put("dig ");
                self.pick(&[
                    "\"k\" ",
                    "\"zz\" ",
                    "\"deep\" \"er\" ",
                    "\"k\" \"x\" ",
                    "\"n\" \"x\" ",
                    "\"deep\" \"no\" \"x\" ",
                    "1 ",
                    "",
                ]);
                self.operand(Any);
                self.put(" ");
                self.operand(Map);
            }
            6 => self.function("and", &[Any, Any, Any]),
            7 => self.function("or", &[Any, Any, Any]),
            _ => self.function("index", &[Any, Text]),
        }
    }
}
