CREATE TRIGGER used_link_stays_used BEFORE UPDATE ON tasker.answer_links
    FOR EACH ROW WHEN (OLD.used_at IS NOT NULL AND NEW.used_at IS NULL OR OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL)
    EXECUTE FUNCTION tasker.refuse_restored_access('an answer link');
