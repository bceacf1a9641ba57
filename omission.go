package tasker

// OmittedDocument replaces a document that would make a list larger than the response limit.
type OmittedDocument struct {
	Omitted     bool   `json:"omitted"`      // always true
	StoredBytes int    `json:"stored_bytes"` // compressed size
	ReadAt      string `json:"read_at"`      // API path of the document
}
