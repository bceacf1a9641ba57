package payload

import "bytes"

// TrimBOM returns a document without the byte order mark that programs on Windows put
// before it.
func TrimBOM(doc []byte) []byte { return bytes.TrimPrefix(doc, []byte("\ufeff")) }
