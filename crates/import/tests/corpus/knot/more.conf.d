zone:
  - domain: more.example
    file: /srv/more.zone
