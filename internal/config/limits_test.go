package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// TestLimitsDoc compares docs/reference/limits.md with what holds: each constant of limits.go
// is in one of its tables with its value, each key with its default.
func TestLimitsDoc(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| [^|]+ \\| ([0-9]+)[^|]* \\| `([^`]+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		said[row[2]] = row[1]
	}
	values := map[string]int{
		"MaxDocumentBytes": tasker.MaxDocumentBytes, "MaxDocumentValues": tasker.MaxDocumentValues, "MaxDocumentKeys": tasker.MaxDocumentKeys,
		"MaxDocumentDepth": tasker.MaxDocumentDepth, "MaxStringBytes": tasker.MaxStringBytes, "MaxNumberDigits": tasker.MaxNumberDigits,
		"MaxFailureBytes": tasker.MaxFailureBytes, "MaxInlineInputBytes": tasker.MaxInlineInputBytes, "MaxItemListBytes": tasker.MaxItemListBytes, "MaxInputBytes": tasker.MaxInputBytes,
		"MaxClaimBytes": tasker.MaxClaimBytes, "MaxAnswerBytes": tasker.MaxAnswerBytes, "MaxUnreadBytes": tasker.MaxUnreadBytes, "MaxSnapshotBytes": tasker.MaxSnapshotBytes,
		"MaxEntryNoteBytes": tasker.MaxEntryNoteBytes, "MaxTemplateBytes": tasker.MaxTemplateBytes, "MaxSteps": tasker.MaxSteps, "MaxTriageKeys": tasker.MaxTriageKeys, "MaxSilentFailures": tasker.MaxSilentFailures, "MaxSearchAttributes": tasker.MaxSearchAttributes, "MaxAttributeBytes": tasker.MaxAttributeBytes,
		"MaxEvidenceAttempts": tasker.MaxEvidenceAttempts, "MaxReportEntries": tasker.MaxReportEntries, "MaxReportCases": tasker.MaxReportCases,
		"MaxReportMembers": tasker.MaxReportMembers, "MaxReportEvents": tasker.MaxReportEvents,
		"MaxWorkers": tasker.MaxWorkers, "MaxWorkerRows": tasker.MaxWorkerRows, "MaxWorkerBytes": tasker.MaxWorkerBytes, "MaxKeys": tasker.MaxKeys,
		"MaxSessions": tasker.MaxSessions, "MaxSignIns": tasker.MaxSignIns, "MaxEntryChanges": tasker.MaxEntryChanges, "MaxCaseNotes": tasker.MaxCaseNotes, "MaxMapItems": tasker.MaxMapItems, "MaxTreeTasks": tasker.MaxTreeTasks, "MaxTreeChildren": tasker.MaxTreeChildren, "MaxMapBytes": tasker.MaxMapBytes, "MaxCheckpointBytes": tasker.MaxCheckpointBytes, "MaxEntriesByHand": tasker.MaxEntriesByHand,
		"MaxRejectedReports": tasker.MaxRejectedReports, "MaxCacheBytes": tasker.MaxCacheBytes,
		"MaxSharedCreates": tasker.MaxSharedCreates, "MaxSharedCreateBytes": tasker.MaxSharedCreateBytes, "MaxSmallCreateBytes": tasker.MaxSmallCreateBytes,
		"MaxOperationItems": tasker.MaxOperationItems, "MaxOpenOperations": tasker.MaxOpenOperations, "MaxOpenOperationsPerNamespace": tasker.MaxOpenOperationsPerNamespace, "MaxOperationChunk": tasker.MaxOperationChunk,
		"MaxRecreateChunk": tasker.MaxRecreateChunk, "MaxAssigneeBytes": tasker.MaxAssigneeBytes, "MaxInboxAssignees": tasker.MaxInboxAssignees,
		"MaxOpenAnswerLinks": tasker.MaxOpenAnswerLinks, "MaxEndedAnswerLinks": tasker.MaxEndedAnswerLinks,
		"MaxTaskWaits": tasker.MaxTaskWaits, "MaxSearchTags": tasker.MaxSearchTags, "MaxSearchConditions": tasker.MaxSearchConditions, "MaxSearchCost": tasker.MaxSearchCost,
		"MaxOperationInFlight": tasker.MaxOperationInFlight, "MaxOperationCauses": tasker.MaxOperationCauses,
		"MaxNamespaceWeights": tasker.MaxNamespaceWeights, "MaxOpenHolds": tasker.MaxOpenHolds, "MaxOpenHoldsPerNamespace": tasker.MaxOpenHoldsPerNamespace, "MaxHeldCount": tasker.MaxHeldCount, "MaxHoldHistory": tasker.MaxHoldHistory,
	}
	for name, value := range values {
		if said[name] != fmt.Sprint(value) {
			t.Errorf("docs/reference/limits.md says %q of %s, which is %d", said[name], name, value)
		}
	}
	c := Default()
	for key, said := range said {
		if _, constant := values[key]; constant {
			continue
		}
		if got, found := valueOf(&c, key); !found || got != said {
			t.Errorf("docs/reference/limits.md says %q of %s, which is %q", said, key, got)
		}
	}
	for _, name := range constants(t, filepath.Join("..", "..", "limits.go")) {
		if _, known := values[name]; !known && strings.HasPrefix(name, "Max") {
			t.Errorf("%s of limits.go is not in docs/reference/limits.md", name)
		}
	}
}

func valueOf(c *Config, key string) (string, bool) {
	for _, f := range c.listFields() {
		if f.name == key {
			return fmt.Sprint(f.value.Interface()), true
		}
	}
	return "", false
}

// constants returns the names of the constants that a file declares.
func constants(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}
