package bench

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profile writes profiles of a drain of linear-4 in process, if they are asked for.
func (b *bench) profile(ctx context.Context) (err error) {
	if b.CPUProfile == "" && b.MemProfile == "" {
		return nil
	}
	if err := b.fillQueue(ctx, b.direct(), linear, b.Workflows); err != nil {
		return err
	}
	if b.CPUProfile != "" {
		file, ferr := os.Create(b.CPUProfile)
		if ferr != nil {
			return ferr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
	}
	if b.MemProfile != "" {
		runtime.MemProfileRate = 16 << 10 // was 0: the rest of the run is not of interest
	}
	_, err = b.empty(ctx, b.direct(), b.Workflows*linear.steps)
	pprof.StopCPUProfile()
	if err != nil || b.MemProfile == "" {
		return err
	}
	runtime.GC() // allocations are in the profile after the next collection
	file, err := os.Create(b.MemProfile)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
