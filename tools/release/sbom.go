package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"tasker.example/tasker/tools/licences"
)

// sbom returns the CycloneDX SBOM of a program: linked modules, the standard library, and embedded
// external files.
func (b builder) sbom(name string, program []byte, info *buildinfo.BuildInfo) ([]byte, error) {
	sum := sha256.Sum256(program)
	bom := cdx.NewBOM()
	// Derived from the program, so that the SBOM is reproducible.
	bom.SerialNumber = serialNumber(sum)
	bom.Metadata = &cdx.Metadata{
		Timestamp: b.source.at.UTC().Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: golangURL(info.Main.Path, info.Main.Version) + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/"),
			Type:   cdx.ComponentTypeApplication, Name: name, Version: info.Main.Version,
			PackageURL: golangURL(info.Main.Path, info.Main.Version),
			Licenses:   licence("MIT"),
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}},
			Properties: settings(info),
		},
	}
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	components := []cdx.Component{library("std", goVersion, golangURL("std", goVersion), b.list.Released["std"])}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		id := b.list.Released[m.Path]
		if id == "" {
			return nil, fmt.Errorf("%s has the module %s, whose licence is not in licences.yaml", name, m.Path)
		}
		c := library(m.Path, m.Version, golangURL(m.Path, m.Version), id)
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		components = append(components, c)
	}
	for _, work := range b.list.Files {
		embedded, err := b.embeds(program, work)
		if err != nil {
			return nil, err
		}
		if embedded {
			components = append(components, library(work.Name, work.Version, work.PURL, work.Licence))
		}
	}
	bom.Components = &components
	var text bytes.Buffer
	err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return text.Bytes(), err
}

// serialNumber returns a version 8 UUID derived from a checksum.
func serialNumber(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// embeds reports whether a program contains a file of a work.
func (b builder) embeds(program []byte, work licences.Work) (bool, error) {
	for _, name := range work.Files {
		text, err := os.ReadFile(filepath.Join(b.checkout, name))
		if err != nil {
			return false, err
		}
		if bytes.Contains(program, text) {
			return true, nil
		}
	}
	return false, nil
}

func library(name, version, address, id string) cdx.Component {
	return cdx.Component{
		BOMRef: address, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: address,
		Scope: cdx.ScopeRequired, Licenses: licence(id),
	}
}

func licence(id string) *cdx.Licenses { return &cdx.Licenses{{Expression: id}} }

// golangURL returns the package URL of a Go module.
func golangURL(path, version string) string { return "pkg:golang/" + path + "@" + version }

// settings returns the build settings and the commit of a program.
func settings(info *buildinfo.BuildInfo) *[]cdx.Property {
	list := []cdx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		list = append(list, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &list
}
