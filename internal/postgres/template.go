package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// PutTemplate stores a template and reports whether it is new. It returns a Conflict if tasks use
// the version and its content differs, or if a quota is exceeded.
func (db *DB) PutTemplate(ctx context.Context, t tasker.Template, source, checksum string, most tasker.Bounds) (tasker.StoredTemplate, bool, error) {
	doc, err := json.Marshal(t)
	if err != nil {
		return tasker.StoredTemplate{}, false, fmt.Errorf("encode template: %w", err)
	}
	var created bool
	err = db.InTx(ctx, func(tx *Tx) error {
		created = false
		_, err := tx.Exec(ctx, statement("dropUnusedTemplate"), t.Namespace, t.Name, t.Version, checksum)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.ConstraintName == "tasks_template_uuid_fkey" {
			return errTemplateUsed // a concurrent transaction has created the first task
		}
		if err != nil {
			return fmt.Errorf("replace template: %w", err)
		}
		var id tasker.ID
		err = tx.QueryRow(ctx, statement("insertTemplate"), t.Namespace, t.Name, t.Version, t.Description, doc, source,
			checksum,
			t.Lifecycle.MaxWaitingForDependenciesMinutes, t.Lifecycle.MaxWaitingForRetryMinutes,
			t.Lifecycle.MaxStepsInProcessMinutes, t.Lifecycle.MaxDurationMinutes, slices.Sorted(maps.Keys(t.Search))).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := tx.checkBounds(ctx, t, id, most); err != nil {
			return err
		}
		if err := tx.nameAttributes(ctx, t, id); err != nil {
			return err
		}
		if err := tx.storeTemplateLimits(ctx, t); err != nil {
			return err
		}
		if err := tx.orderQueues(ctx, t); err != nil {
			return err
		}
		created = true
		if actor := access.IdentityFromContext(ctx).Subject; actor != "" {
			return tx.audit(ctx, actor, "template.registered", t.Namespace+"/"+t.Name+" "+t.Version)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errTemplateUsed) {
		return tasker.StoredTemplate{}, false, fmt.Errorf("store template %s/%s %s: %w", t.Namespace, t.Name, t.Version, err)
	}
	stored, err := db.Template(ctx, t.Namespace, t.Name, t.Version)
	if err != nil {
		return tasker.StoredTemplate{}, false, err
	}
	if stored.Checksum != checksum {
		return tasker.StoredTemplate{}, false, tasker.Errorf(tasker.Conflict,
			"template %s/%s %s is used by tasks and cannot be changed: register the change as a new version",
			t.Namespace, t.Name, t.Version)
	}
	return stored, created, nil
}

// errTemplateUsed indicates that tasks use a template version.
var errTemplateUsed = errors.New("template is used")

type templateRow struct {
	TemplateUUID  tasker.ID
	Configuration json.RawMessage
	Source        string
	Checksum      string
	CreatedAt     time.Time
	RetiredAt     *time.Time
	RetiredBy     string
	RetiredReason string
}

func (r templateRow) toTemplate() (tasker.StoredTemplate, error) {
	t := tasker.StoredTemplate{UUID: r.TemplateUUID, Source: r.Source, Checksum: r.Checksum, CreatedAt: r.CreatedAt}
	if r.RetiredAt != nil {
		t.Retired = &tasker.Retirement{At: *r.RetiredAt, By: r.RetiredBy, Reason: r.RetiredReason}
	}
	err := json.Unmarshal(r.Configuration, &t.Template)
	return t, wrapError(err, "read template %s", r.TemplateUUID)
}

// Template returns a version of a template or, if version is empty, the newest version that is not
// retired. It returns NotFound if there is none.
func (db *DB) Template(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error) {
	return findTemplate(ctx, db.pool, namespace, name, version)
}

// Template is [DB.Template] within the transaction.
func (tx *Tx) Template(ctx context.Context, namespace, name, version string) (tasker.StoredTemplate, error) {
	return findTemplate(ctx, tx, namespace, name, version)
}

func findTemplate(ctx context.Context, q querier, namespace, name, version string) (tasker.StoredTemplate, error) {
	found, err := listTemplates(ctx, q, statement("template"), namespace, name, version)
	if err != nil {
		return tasker.StoredTemplate{}, err
	}
	if len(found) == 0 || !access.ScopeFromContext(ctx).Has(namespace) {
		if version != "" {
			name += " " + version
		}
		return tasker.StoredTemplate{}, tasker.Errorf(tasker.NotFound,
			"template %s/%s not found: register it (tasker-ctl template register FILE), or list the registered "+
				"ones (tasker-ctl template list)", namespace, name)
	}
	return found[0], nil
}

// TemplateByID returns a template version, or NotFound.
func (db *DB) TemplateByID(ctx context.Context, id tasker.ID) (tasker.StoredTemplate, error) {
	return findTemplateByID(ctx, db.pool, id)
}

// TemplateByID is [DB.TemplateByID] within the transaction.
func (tx *Tx) TemplateByID(ctx context.Context, id tasker.ID) (tasker.StoredTemplate, error) {
	return findTemplateByID(ctx, tx, id)
}

func findTemplateByID(ctx context.Context, q querier, id tasker.ID) (tasker.StoredTemplate, error) {
	found, err := listTemplates(ctx, q, statement("templateByID"), id)
	if err != nil {
		return tasker.StoredTemplate{}, err
	}
	if len(found) == 0 {
		return tasker.StoredTemplate{}, tasker.Errorf(tasker.NotFound, "template %s not found", id)
	}
	return found[0], nil
}

// Templates lists the templates of a namespace, or of all namespaces if namespace is empty, by name
// and age.
func (db *DB) Templates(ctx context.Context, namespace string, limit, offset int) ([]tasker.StoredTemplate, error) {
	return listTemplates(ctx, db.pool, statement("templates"), namespace, limit, offset,
		access.ScopeFromContext(ctx).List())
}

// TemplateVersions lists the newest versions of a template, including retired ones.
func (db *DB) TemplateVersions(ctx context.Context, namespace, name string, limit int) ([]tasker.StoredTemplate, error) {
	return listTemplates(ctx, db.pool, statement("templateVersions"), namespace, name, limit)
}

func listTemplates(ctx context.Context, q querier, sql string, args ...any) ([]tasker.StoredTemplate, error) {
	rows, err := collect[templateRow](ctx, q, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	out := make([]tasker.StoredTemplate, len(rows))
	for i, r := range rows {
		if out[i], err = r.toTemplate(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// OtherVersions returns the newest versions of a template that are not retired, except v.
func (db *DB) OtherVersions(ctx context.Context, v tasker.TemplateVersion) ([]string, error) {
	list, err := collectColumn[string](ctx, db.pool, statement("otherVersions"), v.Namespace, v.Name, v.Version)
	return list, wrapError(err, "list the versions of a template")
}

// TemplateName identifies a template without a version.
type TemplateName struct {
	Namespace string
	Name      string
}

// TemplateNames lists up to limit templates, by namespace and name.
func (db *DB) TemplateNames(ctx context.Context, limit int) ([]TemplateName, error) {
	names, err := collect[TemplateName](ctx, db.pool, statement("selectTemplateNames"), limit,
		access.ScopeFromContext(ctx).List())
	return names, wrapError(err, "list the names of templates")
}
