"""SkyRL in tandem: ``python -m tandem_skyrl --tandem.schedule word <SkyRL's settings>``.

Only subclasses: of SkyRL's experiment (:class:`~tandem_skyrl.experiment.TandemExp`), and of the
generator and the trainer that it creates. No line of SkyRL is patched.
"""
