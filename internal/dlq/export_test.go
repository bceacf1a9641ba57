package dlq

// SweepFor is how long a pass of the sweep begins another batch.
const SweepFor = sweepFor
