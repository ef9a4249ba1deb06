from tandem_verl.after_import import after_import
def t(m):
    a = m.TandemTrainer.admit
    def admit(self, samples):
        print("TRACE admit", len(samples), flush=True)
        a(self, samples); print("TRACE", self.metrics, id(self), flush=True)
    m.TandemTrainer.admit = admit
after_import("tandem_openrlhf.trainer", t)
