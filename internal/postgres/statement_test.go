package postgres

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// inScopes runs a function for all namespaces and for some.
func inScopes(run func(context.Context, *DB) error) func(context.Context, *DB) error {
	return func(ctx context.Context, db *DB) error {
		return errors.Join(run(ctx, db), run(access.WithScope(ctx, access.NamespaceScope("a", "b")), db))
	}
}

// prepares runs statements that take a task.
func prepares(ctx context.Context, tx *Tx, list ...string) error {
	for _, sql := range list {
		if _, err := collect[VersionedStep](ctx, tx, sql, tasker.NewID()); err != nil {
			return err
		}
	}
	return nil
}

// built runs the functions that put a statement together for each call, in all forms
// that it can have.
var built = map[string]func(ctx context.Context, db *DB) error{
	"DB.Tasks": inScopes(func(ctx context.Context, db *DB) error {
		_, err := db.pool.Exec(ctx, `INSERT INTO tasker.attribute_names (namespace, name, type)
			VALUES ('a', 'customer', 'text'), ('a', 'risk', 'number'), ('a', 'due', 'time'), ('a', 'gift', 'bool') ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		for _, f := range []tasker.TaskFilter{
			{}, {State: tasker.TaskError}, {Namespace: "a"}, {Name: "b"}, {State: tasker.TaskError, Namespace: "a", Name: "b", DeadLettered: new(true)},
			{Namespace: "a", Name: "b", DeadLettered: new(false)}, {CreatedAfter: time.Now(), CreatedBefore: time.Now(), Namespace: "a"},
			{Attributes: []tasker.AttributeFilter{{Name: "customer", Value: "x"}}}, {Attributes: []tasker.AttributeFilter{{Name: "risk", Value: ">=0.5"}, {Name: "risk", Value: "<1"}}},
			{Attributes: []tasker.AttributeFilter{{Name: "due", Value: "<=2026-01-31T00:00:00Z"}, {Name: "gift", Value: "true"}}, Namespace: "a", Tags: []string{"a"}},
			{Tags: []string{"a"}}, {Tags: []string{"a", "b"}, Initiator: "a", SourceSystem: "a"}, {CorrelationID: "a", IdempotencyKey: "b"},
			{CorrelationID: tasker.NewID().String(), Tags: []string{"a"}, Namespace: "c"}, {Initiator: "a", CreatedAfter: time.Now()},
			{Overdue: true}, {DueBefore: time.Now(), Namespace: "a", Name: "b", State: tasker.TaskError, Tags: []string{"a"}}, {Overdue: true, DueBefore: time.Now(), Parent: tasker.NewID()},
			{Phase: tasker.Compensating}, {Parent: tasker.NewID()}, {Parent: tasker.NewID(), State: tasker.TaskError, Namespace: "a", Name: "b", Tags: []string{"a"}},
			{SourceSystem: "a", State: tasker.TaskError, Namespace: "a", Name: "b", DeadLettered: new(true), CreatedBefore: time.Now()},
		} {
			if _, _, err := db.Tasks(ctx, f); err != nil {
				return fmt.Errorf("%+v: %w", f, err)
			}
		}
		return nil
	}),
	"Tx.VersionedTask": func(ctx context.Context, db *DB) error {
		return db.InTx(ctx, func(tx *Tx) error {
			for _, lock := range []bool{false, true} {
				if _, _, err := tx.VersionedTask(ctx, tasker.NewID(), lock); tasker.CodeOf(err) != tasker.NotFound {
					return fmt.Errorf("lock %v: %w", lock, err)
				}
			}
			return prepares(ctx, tx, versionedSteps, versionedSteps+` FOR NO KEY UPDATE`)
		})
	},
	"DB.InvestigationQueue": everyFilter(func(ctx context.Context, db *DB, f tasker.InvestigationFilter) error {
		_, _, err := db.InvestigationQueue(ctx, f)
		return err
	}),
	"DB.CasePage": everyCase(func(ctx context.Context, db *DB, f tasker.CaseFilter) error {
		_, _, _, err := db.CasePage(ctx, f)
		return err
	}),
	"DB.countUnclassified": everyCase(func(ctx context.Context, db *DB, f tasker.CaseFilter) error {
		_, err := db.countUnclassified(ctx, f)
		return err
	}),
	"DB.CountArrivals": everyFilter(func(ctx context.Context, db *DB, f tasker.InvestigationFilter) error {
		_, err := db.CountArrivals(ctx, tasker.OperationSelection{Filter: f}, time.Now(), 1)
		return err
	}),
	"selectEntries": everyFilter(func(ctx context.Context, db *DB, f tasker.InvestigationFilter) error {
		now := time.Now()
		for _, s := range []tasker.OperationSelection{
			{Filter: f}, {Filter: f, IDs: []tasker.ID{tasker.NewID()}}, {Filter: f, WorkerVersion: "1"}, {Filter: f, FailedSince: &now},
			{Filter: f, IDs: []tasker.ID{tasker.NewID()}, WorkerVersion: "1", FailedSince: &now},
		} {
			if err := db.InTx(ctx, func(tx *Tx) error { _, err := tx.Freeze(ctx, tasker.NewID(), tasker.ActAnswer, s, 1); return err }); err != nil {
				return fmt.Errorf("%+v: %w", s, err)
			}
		}
		return nil
	}),
	"DB.listEmissionPage": inScopes(func(ctx context.Context, db *DB) error {
		for _, f := range []tasker.EmissionFilter{{Limit: 1}, {Topic: "a", Limit: 1}} {
			if _, _, err := db.Emissions(ctx, f); err != nil {
				return fmt.Errorf("%+v: %w", f, err)
			}
		}
		return nil
	}),
	"DB.claimOnce": func(ctx context.Context, db *DB) error {
		many := make([]string, manyQueues+1)
		for i, handlers := range [][]string{{"a"}, {"a", "b"}, many} {
			for range 2 {
				if _, err := db.ClaimSteps(ctx, Claimant{Namespaces: []string{"n"}, Handlers: handlers, Lease: time.Second}, 1); err != nil {
					return fmt.Errorf("claim %d: %w", i, err)
				}
				db.recordHold()
			}
			db.askUntil.Store(0)
		}
		db.heads.enable(true)
		for range 2 {
			db.heads.addClaimed([]Claimed{{Assignment: tasker.Assignment{Namespace: "n", Handler: "a"}}})
			db.heads.scannedAt = time.Time{}
			if err := db.RefreshQueueHeads(ctx); err != nil {
				return err
			}
			if _, err := db.ClaimSteps(ctx, Claimant{Namespaces: []string{"n"}, Handlers: []string{"a"}, Lease: time.Second}, 1); err != nil {
				return fmt.Errorf("claim from heads: %w", err)
			}
			db.recordHold()
		}
		db.askUntil.Store(0)
		return nil
	},
	"DB.Listen": func(ctx context.Context, db *DB) error {
		ctx, stop := context.WithCancel(ctx)
		if err := db.Listen(ctx, []string{"a", "b"}, stop, func(string, string) {}); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	},
	"queueClaim": func(ctx context.Context, db *DB) error {
		_, _, err := db.Report(ctx, nil, &NextClaim{Claimant: Claimant{Namespaces: []string{"n"}, Handlers: []string{"h"}, Lease: time.Second}, Limit: 1})
		return err
	},
}

// everyFilter runs a query of the investigation queue with each condition alone and
// with all of them.
func everyFilter(query func(context.Context, *DB, tasker.InvestigationFilter) error) func(context.Context, *DB) error {
	return func(ctx context.Context, db *DB) error {
		id := tasker.NewID()
		for _, f := range []tasker.InvestigationFilter{
			{}, {Reason: tasker.ManualDLQ}, {Namespace: "a"}, {Name: "b"}, {Case: &id}, {CaseKey: &id}, {State: tasker.TaskError}, {Age: time.Hour}, {Recovered: new(true)},
			{Text: "words"}, {Text: id.String()},
			{Reason: tasker.ManualDLQ, Namespace: "a", Name: "b", Case: &id, CaseKey: &id, State: tasker.TaskError, Age: time.Hour, Recovered: new(false), Text: id.String()},
		} {
			if err := query(ctx, db, f); err != nil {
				return fmt.Errorf("%+v: %w", f, err)
			}
		}
		return nil
	}
}

// everyCase is everyFilter for cases, with what only they have.
func everyCase(query func(context.Context, *DB, tasker.CaseFilter) error) func(context.Context, *DB) error {
	return everyFilter(func(ctx context.Context, db *DB, f tasker.InvestigationFilter) error {
		for _, c := range []tasker.CaseFilter{{}, {Owner: "a"}, {Unowned: true}, {FailedAgain: true}, {CaseState: tasker.CaseResting}, {CaseState: tasker.CaseResolved}} {
			if c.InvestigationFilter = f; c.CaseState == tasker.CaseResolved && (f.State != "" || f.CaseKey != nil || f.Age > 0 || f.Recovered != nil) {
				continue // of open investigations
			}
			if err := query(ctx, db, c); err != nil {
				return fmt.Errorf("%+v: %w", c, err)
			}
		}
		return nil
	})
}

// acceptAs has PostgreSQL read a statement, and plan it, which needs the privileges of
// running it. It fails if the user of the connection has not got them.
func acceptAs(ctx context.Context, conn *pgx.Conn, sql string) error {
	s, err := conn.Prepare(ctx, "accepted", sql)
	if err != nil {
		return err
	}
	if first := strings.Fields(sql)[0]; slices.Contains([]string{"SELECT", "WITH", "INSERT", "UPDATE", "DELETE"}, first) {
		execute := "EXPLAIN EXECUTE accepted"
		if n := len(s.ParamOIDs); n > 0 {
			execute += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
		}
		_, err = conn.Exec(ctx, execute, pgx.QueryExecModeSimpleProtocol)
	}
	return errors.Join(err, conn.Deallocate(ctx, "accepted"))
}

// The role of a server may run every statement of this package, and PostgreSQL accepts it. They are
// found in the files and in the source, so that a new one cannot be forgotten: one that is not a
// constant must be in a table of this test.
func TestPostgreSQLAcceptsEveryStatement(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	used := map[string]bool{}
	found := statements(t, used)
	maps.Copy(found, queries)
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if err := acceptAs(t.Context(), conn.Conn(), found[place]); err != nil {
			t.Errorf("%s: %v\n%s", place, err, found[place])
		}
	}
	for name, run := range built {
		if !used[name] {
			t.Errorf("%s puts no statement together any more: take it out of the table", name)
		}
		if err := run(t.Context(), db); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name that no file has would panic when the statement is first run.
func TestEveryNamedStatementExistsAndIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for name, file := range parsePackage(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || called(call) != "statement" {
				return true
			}
			statement, constant := evaluate(nil, call.Args[0])
			if !constant || queries[statement] == "" {
				t.Errorf("%s: no file in sql has the statement %q", name, statement)
			}
			used[statement] = true
			return true
		})
	}
	for name := range queries {
		if !used[name] {
			t.Errorf("the statement %s is not used", name)
		}
	}
}

// Statements in files are complete, so they repeat limits of Go as "100 /* MaxRejectedReports */".
func TestNumbersInStatementsAreThoseOfGo(t *testing.T) {
	t.Parallel()
	limits := map[string]int{
		"MaxInlineInputBytes": tasker.MaxInlineInputBytes, "MaxInputBytes": tasker.MaxInputBytes, "MaxItemListBytes": tasker.MaxItemListBytes,
		"MaxHeldCount": tasker.MaxHeldCount, "MaxLimitCount": tasker.MaxLimitCount, "MaxLimitHolders": tasker.MaxLimitHolders,
		"MaxReportEntries": tasker.MaxReportEntries, "MaxReportCases": tasker.MaxReportCases, "MaxReportMembers": tasker.MaxReportMembers,
		"MaxReportEvents": tasker.MaxReportEvents, "MaxIncidentMessages": tasker.MaxIncidentMessages,
		"MaxRejectedReports": tasker.MaxRejectedReports, "MaxEvidenceAttempts": tasker.MaxEvidenceAttempts,
		"maxUnparkKeys": maxUnparkKeys, "maxParkedKeys": maxParkedKeys, "manyQueues": manyQueues, "maxStepSize": maxStepSize,
	}
	found := map[string]bool{}
	for name, sql := range queries {
		for _, m := range regexp.MustCompile(`[\s(](\d+) /\* (\w+) \*/`).FindAllStringSubmatch(sql, -1) {
			found[m[2]] = true
			if want, ok := limits[m[2]]; !ok || m[1] != strconv.Itoa(want) {
				t.Errorf("%s has %s for %s, want %d", name, m[1], m[2], want)
			}
		}
	}
	if len(found) != len(limits) {
		t.Errorf("numbers of %d limits were found, want those of %d", len(found), len(limits))
	}
}

// unnested returns the arrays and names with which a statement reads rows of columns.
func unnested[T any](c columns[T], first int) string {
	arrays, names := make([]string, len(c)), make([]string, len(c))
	for i, column := range c {
		arrays[i], names[i] = fmt.Sprintf("$%d::%s[]", first+i, column.kind), column.name
	}
	return "unnest(" + strings.Join(arrays, ", ") + ") AS u (" + strings.Join(names, ", ") + ")"
}

// Arrays are parameters, so a statement that expects another order would store them in wrong columns.
func TestStatementsReadTheColumnsOfNewTasks(t *testing.T) {
	t.Parallel()
	spaces := strings.NewReplacer("( ", "(", " )", ")")
	for name, want := range map[string]string{
		"insertTasks": unnested(newTaskColumns, 3),
		"insertSteps": unnested(newStepColumns, 2), "insertReadySteps": unnested(readyStepColumns, 2), "announceNew": unnested(enqueuedColumns, 1),
		"insertTaskMoves": unnested(taskMoveColumns, 1), "insertDeadlines": unnested(deadlineColumns, 1), "replaceDeadlines": unnested(deadlineColumns, 1),
	} {
		sql := spaces.Replace(strings.Join(strings.Fields(statement(name)), " "))
		if !strings.Contains(sql, want) {
			t.Errorf("%s does not read %s", name, want)
		}
	}
}

// Only the query helpers see errors of the driver, and they translate them.
func TestOnlyTheQueryHelpersReadRows(t *testing.T) {
	t.Parallel()
	calls := map[string]int{"query.go": 4, "connclass.go": 1, "share.go": 2}
	for name, file := range parsePackage(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if of, ok := call.Fun.(*ast.SelectorExpr); ok && (of.Sel.Name == "Query" || strings.HasPrefix(of.Sel.Name, "Collect") && fmt.Sprint(of.X) != "slices") {
				calls[name]--
			}
			return true
		})
		if calls[name] != 0 {
			t.Errorf("%s runs a query or reads rows by itself %d times too often: use collect, collectColumn or queryOne", name, -calls[name])
		}
	}
}

// parsePackage returns the files of the package without its tests.
func parsePackage(t *testing.T) map[string]*ast.File {
	t.Helper()
	notTest := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	dir, err := parser.ParseDir(token.NewFileSet(), ".", notTest, parser.SkipObjectResolution) //nolint:staticcheck // one package, no build tags
	if err != nil {
		t.Fatal(err)
	}
	return dir["postgres"].Files
}

// statements returns the statements that the package runs, by where they stand, and
// notes which entries of the tables were needed.
func statements(t *testing.T, used map[string]bool) map[string]string {
	t.Helper()
	files := parsePackage(t)
	scope := map[string]ast.Expr{}
	passed := map[string]int{"collect": 2, "collectColumn": 2, "queryOne": 2, "QueryRow": 1, "Exec": 1, "Query": 1, "Queue": 0} // where the statement is among the arguments
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.GenDecl:
				declare(scope, d)
			case *ast.FuncDecl:
				if at := parameter(d.Type, "sql"); at >= 0 {
					passed[d.Name.Name] = at
				}
			}
		}
	}
	found := map[string]string{}
	for _, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			local := maps.Clone(scope)
			ast.Inspect(f, func(n ast.Node) bool {
				switch d := n.(type) {
				case *ast.GenDecl:
					if d.Tok == token.CONST {
						declare(local, d)
					}
				case *ast.AssignStmt: // a variable that is one of several named statements
					if id, ok := d.Lhs[0].(*ast.Ident); ok && id.Name == "sql" {
						local[id.Name] = d.Rhs[0]
					}
				}
				return true
			})
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				at, ok := passed[called(call)]
				if !ok || at >= len(call.Args) {
					return true
				}
				arg, name := call.Args[at], function(f)
				sql, constant := evaluate(local, arg)
				switch {
				case constant:
					found[fmt.Sprintf("%s, statement %d", name, arg.Pos())] = sql
				case built[name] != nil:
					used[name] = true
				case parameter(f.Type, "sql") < 0: // which passes on what it is given
					t.Errorf("%s runs a statement that is not constant: add it to a table of this test", name)
				}
				return true
			})
		}
	}
	return found
}

func declare(scope map[string]ast.Expr, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
			for i, name := range v.Names {
				scope[name.Name] = v.Values[i]
			}
		}
	}
}

// evaluate returns the text of an expression of constants.
func evaluate(scope map[string]ast.Expr, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		value, ok := scope[e.Name]
		if !ok {
			return "", false
		}
		return evaluate(scope, value)
	case *ast.CallExpr:
		if called(e) != "statement" || len(e.Args) != 1 {
			return "", false
		}
		name, ok := evaluate(scope, e.Args[0])
		return queries[name], ok
	case *ast.BinaryExpr:
		left, ok := evaluate(scope, e.X)
		right, also := evaluate(scope, e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}

// called returns the name of what a call calls.
func called(call *ast.CallExpr) string {
	fun := call.Fun
	switch generic := fun.(type) {
	case *ast.IndexExpr:
		fun = generic.X
	case *ast.IndexListExpr:
		fun = generic.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// function returns the name of a function or, with its type, of a method.
func function(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// parameter returns the place of a parameter, or -1.
func parameter(f *ast.FuncType, name string) int {
	at := 0
	for _, field := range f.Params.List {
		for _, n := range field.Names {
			if n.Name == name {
				return at
			}
			at++
		}
	}
	return -1
}
