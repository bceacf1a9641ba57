-- What is said of a namespace as a whole. Claims of several namespaces read it twice a second in each server.
CREATE TABLE tasker.namespaces (
    namespace text             NOT NULL PRIMARY KEY,
    weight    double precision NOT NULL,
    set_by    text             NOT NULL,
    set_at    timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT namespace_weight_is_in_bounds CHECK (weight BETWEEN 0.01 AND 1000)
);
COMMENT ON TABLE tasker.namespaces IS 'The weights of namespaces in claims of several: their shares when all have work. A namespace without a row has the weight 1.';
