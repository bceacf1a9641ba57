package redact

import "strings"

// Pattern returns a PostgreSQL regular expression for the words of hidden keys, as returned by the
// function key_words. It matches nothing if no key is hidden.
func (r Rules) Pattern() string {
	hidden, shown := joinAlternatives(r.names, name.isHidden), joinAlternatives(r.names, name.isExempt)
	switch {
	case hidden == "":
		return "^$"
	case shown == "":
		return wordsMark + hidden
	default:
		return wordsMark + "^(?!.*" + shown + ").*" + hidden
	}
}

// wordsMark is the prefix of all expressions for words. Earlier versions used expressions for texts
// without separators and may still run concurrently.
const wordsMark = "(?:)"

// Document returns a PostgreSQL regular expression for the text of a JSON document. A document
// that does not match contains nothing to hide. Matching is cheap, because it takes one pass over
// the text. Document returns "" if nothing is hidden.
func (r Rules) Document() string {
	var list []string
	const between = `[^A-Za-z0-9"]*` // superset of the separators
	for _, n := range r.names {
		if n.shown {
			continue
		}
		core, open, closed := n.spellingPattern(between, `(?:[^"\\]|\\.)*`, anyCasePattern)
		if !n.whole {
			core = boundedPattern(n, core)
		} else {
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
	list = append(list, escapedSpace, urlPassword, urlToken, bearerToken, webToken, "-----(?:BEGIN|END) ", curlUser, digest,
		r.markupPattern())
	return wordsMark + "(?:" + strings.Join(list, "|") + ")"
}

// markupPattern returns a regular expression that matches a hidden name as a command-line option or
// an XML element.
func (r Rules) markupPattern() string {
	return "(?:--?|<)[A-Za-z0-9_.:\\-]*" + r.textNamesPattern() + "[ >]"
}

// escapedSpace matches a key with escaped white space, as in "pass\tword", which may be hidden.
const escapedSpace = `"(?:[^"\\]|\\.)*\\(?:[tnrf]|u000b)(?:[^"\\]|\\.)*":`

// boundedPattern adds word boundaries to the pattern for a name. They match a superset of the word
// boundaries of [splitWords].
func boundedPattern(n name, core string) string {
	runes := []rune(n.letters)
	first, last := runes[0], runes[len(runes)-1]
	if 'a' <= first && first <= 'z' {
		upper := string(first - 'a' + 'A')
		rest := strings.TrimPrefix(core, anyCasePattern(first))
		core = `(?:(?:^|[^A-Za-z]|\\[tnrf])` + string(first) + "|" + upper + ")" + rest
	}
	if 'a' <= last && last <= 'z' {
		core += "[^a-z]"
	}
	return core
}

// Regular expressions, for PostgreSQL and Go, that match secrets in texts. Each has three groups:
// the text before the secret, the secret, and the text after it.
const (
	urlPassword = `(://[^ \t\n\r\f\v/?#@:"']*:)([^ \t\n\r\f\v/?#"']+)(@)`
	urlToken    = `(://)([A-Za-z0-9_\-]{16,})(@)`
	bearerToken = `([Bb][Ee][Aa][Rr][Ee][Rr] +)([A-Za-z0-9._~+/=\-]*[A-Z0-9_+/=][A-Za-z0-9._~+/=\-]*)()`
	webToken    = `()(eyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.?[A-Za-z0-9_\-]*)()`
	privateKey  = `(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----)((?:[A-Za-z0-9+/=:,. \t\n\r\\]|-[A-Za-z0-9])+)()`
	keysEnd     = `()([A-Za-z0-9+/=\r\n\\]{16,})(-----END [A-Z0-9 ]*PRIVATE KEY)` // of a truncated key
	curlUser    = `((?:-u|--user|--proxy-user)[ =]["']?[^ :"']+:)([^ \t\n\r\f\v"']+)()`
	credentials = `([Aa]uthorization\\?["']?[ ]?[:=]>?[ ]?\\?["']?[A-Za-z][A-Za-z0-9\-]* +)([^ \t\n\r\f\v"'&;,)}\]\[]*[A-Z0-9_+/=][^ \t\n\r\f\v"'&;,)}\]\[]*)()`
	digest      = `([Dd]igest +)((?:[a-z]+="?[^",\n\r]*"?,? *){2,})()`
	cookies     = `([Cc]ookie\\?["']?[ ]?[:=]>?[ ]?\\?["']?)([^ \t\n\r=;"']+=[^\n\r"']*)()`
)

// Regular expressions for the value of a name: a quoted text, possibly truncated, or a word. A
// word after a colon and a blank must look like a secret, because it may be part of a sentence.
const (
	quotedValue = `\\"(?:[^"\\]|\\[^"])*(?:\\")?|[bBrRuU]?"(?:[^"\\]|\\.)*"?|[bBrRuU]?'(?:[^'\\]|\\.)*'?`
	wordValue   = `[^ \t\n\r\f\v"'&;,)}\]\[]`
)

// Texts returns regular expressions that match secrets in texts: passwords in URLs, credentials in
// headers, private keys, and values of hidden names in the notations of various programs and
// languages.
func (r Rules) Texts() []string {
	names := r.textNamesPattern()
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

// textNamesPattern returns a regular expression that matches the hidden names in texts.
func (r Rules) textNamesPattern() string {
	var list []string
	for _, n := range r.names {
		if n.shown {
			continue
		}
		core, open, closed := n.spellingPattern("[_. \\-]?", "[A-Za-z0-9_.\\-]*", anyCasePattern)
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

// Text redacts the secrets in a text.
func (r Rules) Text(text string) string {
	for _, t := range r.texts {
		text = t.ReplaceAllString(text, "${1}"+Hidden+"${3}")
	}
	return text
}
