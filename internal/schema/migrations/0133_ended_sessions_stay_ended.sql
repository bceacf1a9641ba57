CREATE TRIGGER ended_session_stays_ended BEFORE UPDATE ON tasker.sessions
    FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL AND NEW.ended_at IS NULL)
    EXECUTE FUNCTION tasker.refuse_restored_access('a session');
