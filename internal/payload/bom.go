package payload

import "bytes"

// TrimBOM removes the byte order mark that Windows programs write.
func TrimBOM(doc []byte) []byte { return bytes.TrimPrefix(doc, []byte("\ufeff")) }
