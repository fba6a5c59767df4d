# Forwards to ./dev, for those whose fingers say make.
.PHONY: run test format bench fuzz soak smoke lock
run test format bench fuzz soak smoke lock:
	@./dev $@
