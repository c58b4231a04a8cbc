package source

// A feed that left others reads what they have read, and comes up with them only if they are slower than it. So they let it come
// up, as long as that costs them nothing: a feed that is a little ahead of one that asks is not fetched while its members have
// enough to do.

// littleAhead is how many bytes are a little: somewhat more than what a lane may hold, which is how far two feeds are apart when they
// part.
const littleAhead = 32 << 20

// callLocked has the feeds that are a little ahead of this one, which has just asked or read, wait for it.
func (f *feed) callLocked() {
	if len(f.part.feeds) < 2 || !f.wantsLocked() {
		return
	}
	s := f.part.source
	for _, x := range f.part.feeds {
		if x != f && !x.yields && x.asksLocked() && x.yieldsToLocked(f) && !x.hungryLocked() {
			x.yieldLocked(true)
			s.paused[x] = struct{}{}
			s.watchLocked()
		}
	}
}

func (f *feed) yieldLocked(yields bool) {
	was := f.wantsLocked()
	f.yields = yields
	f.wantedLocked(was)
}

// yieldsToLocked says whether the other one is a little behind and comes up.
func (f *feed) yieldsToLocked(x *feed) bool {
	return x.asksLocked() && x.offset < f.offset && f.offset-x.offset <= littleAhead/max(f.density, 1) && x.epoch <= f.epoch
}

// goOnLocked ends the waiting when it is in vain, or no longer for nothing.
func (f *feed) goOnLocked() {
	if !f.yields {
		return
	}
	if !f.hungryLocked() {
		for _, x := range f.part.feeds {
			if x != f && f.yieldsToLocked(x) {
				return
			}
		}
	}
	f.yieldLocked(false)
}
