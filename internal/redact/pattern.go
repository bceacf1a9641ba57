package redact

import "strings"

// Pattern is a regular expression of PostgreSQL for the words of the keys that are
// hidden (function key_words); it matches nothing when none is.
func (r Rules) Pattern() string {
	hidden, shown := alternatives(r.names, name.hidden), alternatives(r.names, name.exempt)
	switch {
	case hidden == "":
		return "^$"
	case shown == "":
		return wordsMark + hidden
	default:
		return wordsMark + "^(?!.*" + shown + ").*" + hidden
	}
}

// wordsMark begins every expression that is made here. Earlier versions wrote
// others, for texts without separators, and may still do so beside this one.
const wordsMark = "(?:)"

// Document is a regular expression of PostgreSQL for the text of a JSON document: one
// that does not match holds nothing that is hidden by its key or inside of a text. It
// is one pass over the text as it is, which is what makes it cheap. It is empty when
// nothing is hidden.
func (r Rules) Document() string {
	var list []string
	const between = `[^A-Za-z0-9"]*` // more than separators, and short
	for _, n := range r.names {
		if n.shown {
			continue
		}
		core, open, closed := n.spelled(between, `(?:[^"\\]|\\.)*`, anyCase)
		switch {
		case !n.whole:
			core = bounded(n, core)
		default:
			if !open {
				core = `(?:^|[^A-Za-z0-9]|\\[tnrf])` + core
			}
			if !closed {
				core += between + `\\?["=:']`
			}
		}
		list = append(list, core)
	}
	if len(list) == 0 {
		return ""
	}
	return wordsMark + "(?:" + strings.Join(append(list, escapedSpace, urlPassword, urlToken, bearerToken, webToken, "-----(?:BEGIN|END) ", curlUser, digest, r.inMarkup()), "|") + ")"
}

// inMarkup is a regular expression for a name that is hidden as an option of a command, or as an element of XML.
func (r Rules) inMarkup() string { return "(?:--?|<)[A-Za-z0-9_.:\\-]*" + r.namesInTexts() + "[ >]" }

// escapedSpace is a key with white space that JSON writes as an escape, as in
// "pass\tword": any such key may be one that is hidden.
const escapedSpace = `"(?:[^"\\]|\\.)*\\(?:[tnrf]|u000b)(?:[^"\\]|\\.)*":`

// bounded lets a word begin and end where one may: words that [words] would find
// there, and some that it would not.
func bounded(n name, core string) string {
	runes := []rune(n.letters)
	first, last := runes[0], runes[len(runes)-1]
	if 'a' <= first && first <= 'z' {
		upper := string(first - 'a' + 'A')
		rest := strings.TrimPrefix(core, anyCase(first))
		core = `(?:(?:^|[^A-Za-z]|\\[tnrf])` + string(first) + "|" + upper + ")" + rest
	}
	if 'a' <= last && last <= 'z' {
		core += "[^a-z]"
	}
	return core
}

// What is hidden inside of texts, in regular expressions that PostgreSQL and Go read
// alike. Each has three groups: what stays before, what is hidden, what stays after.
const (
	urlPassword = `(://[^ \t\n\r\f\v/?#@:"']*:)([^ \t\n\r\f\v/?#"']+)(@)`
	urlToken    = `(://)([A-Za-z0-9_\-]{16,})(@)`
	bearerToken = `([Bb][Ee][Aa][Rr][Ee][Rr] +)([A-Za-z0-9._~+/=\-]*[A-Z0-9_+/=][A-Za-z0-9._~+/=\-]*)()`
	webToken    = `()(eyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.?[A-Za-z0-9_\-]*)()`
	privateKey  = `(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----)((?:[A-Za-z0-9+/=:,. \t\n\r\\]|-[A-Za-z0-9])+)()`
	keysEnd     = `()([A-Za-z0-9+/=\r\n\\]{16,})(-----END [A-Z0-9 ]*PRIVATE KEY)` // of a key without its beginning
	curlUser    = `((?:-u|--user|--proxy-user)[ =]["']?[^ :"']+:)([^ \t\n\r\f\v"']+)()`
	credentials = `([Aa]uthorization\\?["']?[ ]?[:=]>?[ ]?\\?["']?[A-Za-z][A-Za-z0-9\-]* +)([^ \t\n\r\f\v"'&;,)}\]\[]*[A-Z0-9_+/=][^ \t\n\r\f\v"'&;,)}\]\[]*)()`
	digest      = `([Dd]igest +)((?:[a-z]+="?[^",\n\r]*"?,? *){2,})()`
	cookies     = `([Cc]ookie\\?["']?[ ]?[:=]>?[ ]?\\?["']?)([^ \t\n\r=;"']+=[^\n\r"']*)()`
)

// The value of a name is a quoted text, perhaps without its end, or a word. A word behind a colon and a blank
// must look like a secret, because a sentence may stand there.
const (
	quotedValue = `\\"(?:[^"\\]|\\[^"])*(?:\\")?|[bBrRuU]?"(?:[^"\\]|\\.)*"?|[bBrRuU]?'(?:[^'\\]|\\.)*'?`
	wordValue   = `[^ \t\n\r\f\v"'&;,)}\]\[]`
)

// Texts are regular expressions of what is hidden inside of texts: passwords of URLs, credentials of headers, private
// keys, and what is assigned to a name that is hidden, in the forms in which programs and languages print it.
func (r Rules) Texts() []string {
	names := r.namesInTexts()
	if names == "" {
		return []string{}
	}
	return []string{
		urlPassword, urlToken, bearerToken, webToken, privateKey, keysEnd, curlUser, digest, credentials, cookies,
		"(" + names + `(?:\\?["'\]]?[ ]?=>?[ ]?|\\?["'][ ]?:[ ]?|:))(` + quotedValue + `|` + wordValue + `+)()`,
		"(" + names + `: +)([bBrRuU]?"(?:[^"\\]|\\.)*"?|[bBrRuU]?'(?:[^'\\]|\\.)*'?|` + wordValue + `+[A-Z0-9_+/=!@#$%^*]` + wordValue + `*)()`,
		"(--?" + names + ` +)(` + quotedValue + `|` + wordValue + `+)()`,
		"(<(?:[A-Za-z0-9_.\\-]+:)?" + names + `(?:[ ][^>]*)?>)([^<]+)()`,
	}
}

// namesInTexts is a regular expression for the names that are hidden, as texts spell them.
func (r Rules) namesInTexts() string {
	var list []string
	for _, n := range r.names {
		if n.shown {
			continue
		}
		core, open, closed := n.spelled("[_. \\-]?", "[A-Za-z0-9_.\\-]*", anyCase)
		if !open {
			core = "(?:^|[^A-Za-z0-9])" + core
		}
		if closed {
			core += "[A-Za-z0-9_.\\-]*"
		}
		list = append(list, core)
	}
	if len(list) == 0 {
		return ""
	}
	return "(?:" + strings.Join(list, "|") + ")"
}

// Text hides what must not be shown inside of a text.
func (r Rules) Text(text string) string {
	for _, t := range r.texts {
		text = t.ReplaceAllString(text, "${1}"+Hidden+"${3}")
	}
	return text
}
