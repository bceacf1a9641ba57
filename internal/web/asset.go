package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed static/*.css static/*.js static/*.svg
var staticFiles embed.FS

// An asset is a file that pages load. Its address has its hash, so a browser may
// keep it for ever.
type asset struct {
	kind  string // its media type
	hash  string
	plain []byte
	small []byte // compressed
}

func loadAssets() map[string]asset {
	assets := map[string]asset{}
	err := fs.WalkDir(staticFiles, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		assets[path.Base(name)] = asset{
			kind: mime.TypeByExtension(path.Ext(name)), hash: hex.EncodeToString(sum[:6]), plain: text, small: compress(text),
		}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return assets
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is one
	_, _ = z.Write(text)
	_ = z.Close()
	return b.Bytes()
}

// assetPath is where a page finds an asset.
func (s *server) assetPath(name string) string {
	return Root + "/static/" + name + "?v=" + s.assets[name].hash
}

func (s *server) static(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	if r.URL.Query().Get("v") == a.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	text := a.plain
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		text = a.small
	}
	_, _ = w.Write(text) // when the browser is gone, there is nobody to tell
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(quality, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
