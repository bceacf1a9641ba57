package postgres

import "context"

// MarkRestoredEvents adopts the sinks of a restored database and marks up to limit events as old.
// It returns the number of marked events. All are marked if the number is less than limit.
func (db *DB) MarkRestoredEvents(ctx context.Context, limit int) (int, error) {
	if err := db.adoptSinks(ctx); err != nil {
		return 0, err
	}
	tag, err := db.pool.Exec(ctx, statement("adoptEvents"), limit)
	return int(tag.RowsAffected()), wrapError(err, "adopt the events of a restored database")
}

func (db *DB) adoptSinks(ctx context.Context) error {
	return exec(ctx, db.pool, "adopt the sinks of a restored database", statement("adoptSinks"))
}

// HasAdopted reports whether MarkRestoredEvents has marked all events of a restored database.
func (db *DB) HasAdopted(ctx context.Context) (bool, error) {
	found, err := queryValue[bool](ctx, db.pool, statement("restoredEvents"))
	return err == nil && !found, wrapError(err, "find events of a restored database")
}
